"""What happens between the steps: the log, validation, the best weights, checkpoints, and the end."""

from __future__ import annotations

import math
import signal
import threading
from contextlib import suppress
from time import monotonic
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.plugins import TorchCheckpointIO

from p2plane.networks.weights import save_model
from p2plane.training.config import MEASURES
from p2plane.training.data import described
from p2plane.training.folder import RunFolder, as_bytes, versions, write_whole
from p2plane.training.logs import Logs
from p2plane.training.module import TrainingModule
from p2plane.training.progress import Progress
from p2plane.training.validation import validate

STATE = "p2plane"


class WholeFiles(TorchCheckpointIO):
    """Checkpoints that are there as a whole or not at all, and from which no code is run."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        write_whole(path, as_bytes(checkpoint))


class Keeper(Callback):
    """Keeps the books of a run. Its own state goes with the checkpoints.

    Args:
        folder: of the run.
    """

    state_key = STATE

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.best: dict[str, float] = {}
        self.validated: dict[str, float] = {}
        self.stopped = ""
        self._seconds = 0.0
        self._started: float | None = None
        self._logs: Logs | None = None
        self._progress: Progress | None = None
        self._sums: dict[str, float] = {}
        self._count = 0
        self._signal: int | None = None
        self._handlers: dict[int, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """Time, best errors, and the beginning of a row of the log."""
        return {"seconds": self.seconds, "best": self.best, "sums": self._sums, "count": self._count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """All of it again."""
        self._seconds, self.best = state["seconds"], state["best"]
        self._sums, self._count = state["sums"], state["count"]

    @property
    def seconds(self) -> float:
        """Of training and validation, over all runs."""
        return self._seconds + (0.0 if self._started is None else monotonic() - self._started)

    def on_train_start(self, trainer: Trainer, module: TrainingModule) -> None:  # type: ignore[override]
        """Open the books."""
        self._started = self._row_began = self._saved = monotonic()
        if trainer.is_global_zero:
            self._logs = Logs(self.folder, trainer.global_step)
            self._progress = Progress(module.total_steps, module.settings.budget.minutes)
            self._progress.start(trainer.global_step)
        self._catch_signals()

    def on_train_batch_end(  # type: ignore[override]
        self, trainer: Trainer, module: TrainingModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """After every step."""
        step, settings = trainer.global_step, module.settings
        self._add(module.last)
        done = self._is_done(trainer, module)
        if step % settings.log_every == 0 or done:
            self._write_row(trainer, module)
        if step % (settings.validation.every or module.steps_per_epoch) == 0 or done:
            self._validate(trainer, module)
        if done and trainer.is_global_zero:
            save_model(self.folder.last, module.model, self.notes(module))
        interrupted = self._agree(trainer, self._signal is not None)
        if done or interrupted or self._agree(trainer, self._is_due(step, settings)):
            self.save(trainer)
        if done or interrupted:
            self.stopped = "done" if done else "interrupted"
            trainer.should_stop = True

    def save(self, trainer: Trainer) -> None:
        """A checkpoint of the step."""
        path = self.folder.checkpoint(trainer.global_step)
        try:
            trainer.save_checkpoint(path)
            if trainer.is_global_zero:
                self.folder.keep_newest()
        except OSError as error:
            kept = [each.name for each in self.folder.checkpoints()]
            raise RuntimeError(
                f"the checkpoint of step {trainer.global_step} must be written to {path.parent}, but {error}; what was "
                f"saved before is whole ({kept[0] if kept else 'nothing yet'}): make room and start again to resume"
            ) from error
        self._saved = monotonic()

    def close(self) -> None:
        """Close the books, after whatever end."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}
        if self._progress is not None:
            self._progress.stop()
        if self._logs is not None:
            with suppress(OSError):  # of a full disk, which has been told already
                self._logs.close()

    def notes(self, module: TrainingModule) -> dict[str, Any]:
        """What a weights file says about its training."""
        settings = module.settings
        return {
            "data": described(settings.data),
            "loss": settings.loss.name,
            "steps": module.trainer.global_step,
            "minutes": round(self.seconds / 60, 2),
            "batch_size": settings.batch_size,
            "seed": settings.seed,
            "init": settings.init,
            "validation": {"pairs": settings.validation.pairs, **self.validated},
            **versions(),
        }

    def _is_done(self, trainer: Trainer, module: TrainingModule) -> bool:
        minutes = module.settings.budget.minutes
        out_of_time = minutes is not None and self.seconds >= 60 * minutes
        out_of_steps = module.total_steps is not None and trainer.global_step >= module.total_steps
        return out_of_steps or (minutes is not None and self._agree(trainer, out_of_time))

    def _is_due(self, step: int, settings: Any) -> bool:
        every = settings.checkpoint
        return (every.steps is not None and step % every.steps == 0) or monotonic() - self._saved >= 60 * every.minutes

    def _agree(self, trainer: Trainer, mine: bool) -> bool:
        """Whether any process says so."""
        return trainer.strategy.reduce_boolean_decision(mine, all=False) if trainer.world_size > 1 else mine

    def _mean(self, trainer: Trainer, mine: float) -> float:
        """The mean over all processes."""
        if trainer.world_size == 1:
            return mine
        device = trainer.strategy.root_device
        return float(trainer.strategy.reduce(torch.tensor(mine, device=device), reduce_op="mean"))

    def _add(self, numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            self._sums[name] = self._sums.get(name, 0.0) + (value if math.isfinite(value) else 0.0)
        self._count += 1

    def _write_row(self, trainer: Trainer, module: TrainingModule) -> None:
        now, count = monotonic(), self._count
        numbers = {name: self._mean(trainer, total / count) for name, total in sorted(self._sums.items())}
        numbers |= {
            "epoch": trainer.global_step / module.steps_per_epoch,
            "minutes": self.seconds / 60,
            "lr": trainer.optimizers[0].param_groups[0]["lr"],
            "skipped": module.skipped,
            "pairs_per_second": count * module.settings.batch_size / max(now - self._row_began, 1e-9),
        }
        self._sums, self._count, self._row_began = {}, 0, now
        if self._logs is not None and self._progress is not None:
            self._logs.write(trainer.global_step, numbers)
            self._progress.show(trainer.global_step, numbers)

    def _validate(self, trainer: Trainer, module: TrainingModule) -> None:
        before = monotonic()
        self.validated = numbers = validate(module)
        by = module.settings.validation.by
        is_best = not self.best or numbers[by] < self.best[by]
        if is_best:
            self.best = dict(numbers) | {"step": trainer.global_step}
        if self._logs is not None and self._progress is not None:
            self._logs.write(trainer.global_step, {f"validation_{name}": numbers[name] for name in MEASURES})
            self._progress.say(
                f"step {trainer.global_step}, {self.seconds / 60:.1f} min: angle {numbers['angle_mean_deg']:.3f} deg "
                f"(median {numbers['angle_median_deg']:.3f}), translation {numbers['length_mean']:.4f}"
                f"{' (best)' if is_best else ''}"
            )
            if is_best:
                save_model(self.folder.best, module.model, self.notes(module))
        self._row_began += monotonic() - before

    def _catch_signals(self) -> None:
        """Stop after the step at the first Ctrl-C or SIGTERM; a second one stops at once."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            self._handlers[number] = signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: Any) -> None:
        if self._signal is not None:
            raise KeyboardInterrupt
        self._signal = number
