"""`train`: everything is checked first, then Lightning runs the steps, from the last checkpoint if there is one."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from p2plane.networks.door import RegistrationNetwork
from p2plane.networks.weights import load_model
from p2plane.training.config import TrainSettings
from p2plane.training.data import open_data
from p2plane.training.files import differences, read_config
from p2plane.training.folder import RunFolder

FREE_TO_CHANGE = ("budget", "checkpoint", "nodes", "workers", "threads", "log_every")
"""What a resumed run may do differently."""


@dataclass(frozen=True)
class TrainResult:
    """What came out of a training."""

    folder: Path
    steps: int
    minutes: float
    best: dict[str, float]
    """Errors of the best weights in validation, and the step that they are from."""
    finished: bool
    """False where it was interrupted."""
    skipped: int
    """Steps that were left out because their gradients were not finite."""

    @property
    def weights(self) -> Path:
        """The best weights."""
        return RunFolder(self.folder).best


def train(settings: TrainSettings, out: str | os.PathLike, *, resume: bool | None = None) -> TrainResult:
    """Train a network, or go on where a training was cut off.

    Whatever can be wrong is looked for before the first step: data, weights to start from, the folder, the disk, and
    what an earlier run left there.

    Args:
        settings: everything that decides the result; see `load_settings`.
        out: the folder of the run.
        resume: True to go on and nothing else, False to start anew and remove an earlier run, None to go on if there is
            something to go on with.
    """
    _require_lightning()
    folder = RunFolder(Path(out))
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    model = initial_model(settings)
    data = open_data(settings.data, seed=settings.seed, held_out=settings.validation.held_out)
    data.train[0], data.validation[0]  # a pair that cannot be made says so now
    if not is_first_process():
        return _fit(settings, folder, model, data, None if resume is False else folder.newest())
    folder.prepare(_needed_bytes(model))
    with folder.locked():
        if resume is False:
            folder.clear()
            folder.prepare(_needed_bytes(model))
        found = folder.newest()
        if resume and found is None:
            raise ValueError(f"{folder.path} must hold a checkpoint to resume from, got none")
        if found is not None:
            _check_same(settings, folder, model, found)
        folder.write_about(settings.values())
        return _fit(settings, folder, model, data, found)


def initial_model(settings: TrainSettings) -> RegistrationNetwork:
    """The network to start with: random weights that depend on the seed, or those of a file."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = settings.model.build()
    if settings.init is None:
        return model
    try:
        model.load_state_dict(load_model(settings.init).state_dict())
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise ValueError(f"init must fit the settings of {settings.model.name}, but {reason}") from error
    return model


def is_first_process() -> bool:
    """Whether this process speaks for all that train together."""
    return all(os.environ.get(name, "0") == "0" for name in ("LOCAL_RANK", "RANK", "NODE_RANK", "SLURM_PROCID"))


def _fit(settings: TrainSettings, folder: RunFolder, model: RegistrationNetwork, data: Any, found: Any) -> TrainResult:
    from lightning.pytorch import Trainer

    from p2plane.training.keeper import STATE, Keeper, WholeFiles
    from p2plane.training.module import TrainingModule

    module = TrainingModule(settings, model.train(), data)
    keeper = Keeper(folder)
    if found is not None and _is_complete(module, found[1]):
        state, skipped = found[1]["callbacks"][STATE], found[1][STATE]["skipped"]
        return TrainResult(folder.path, found[1]["global_step"], state["seconds"] / 60, state["best"], True, skipped)
    with _quiet_lightning(), _signals_as_before():
        trainer = Trainer(
            accelerator=settings.accelerator,
            devices=settings.devices,
            num_nodes=settings.nodes,
            strategy=_strategy(settings),
            precision=_precision(settings),
            max_epochs=-1,
            plugins=[WholeFiles()],
            callbacks=[keeper],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )
        try:
            trainer.fit(module, ckpt_path=None if found is None else found[0], weights_only=True)
        finally:
            keeper.close()
    minutes, finished = keeper.seconds / 60, keeper.stopped == "done"
    return TrainResult(folder.path, trainer.global_step, minutes, keeper.best, finished, module.skipped)


def _check_same(settings: TrainSettings, folder: RunFolder, model: RegistrationNetwork, found: Any) -> None:
    """A run is resumed with its own settings, and a checkpoint goes into its own network."""
    path, checkpoint = found
    differing = differences(_decisive(read_config(folder.config)), _decisive(settings.values()))
    if differing:
        raise ValueError(
            f"{folder.path} holds a run with other settings: {'; '.join(differing)}. "
            "--fresh removes that run, --out chooses another folder"
        )
    expected = {f"model.{key}": value.shape for key, value in model.state_dict().items()}
    got = {key: value.shape for key, value in checkpoint.get("state_dict", {}).items()}
    if expected != got:
        wrong = sorted(set(expected.items()) ^ set(got.items()))[0]
        raise ValueError(f"{path} must be a checkpoint of {settings.model.name} as set, but {wrong[0]} differs")


def _decisive(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in FREE_TO_CHANGE}


def _is_complete(module: Any, checkpoint: dict[str, Any]) -> bool:
    from p2plane.training.keeper import STATE

    minutes, seconds = module.settings.budget.minutes, checkpoint["callbacks"][STATE]["seconds"]
    out_of_steps = module.total_steps is not None and checkpoint["global_step"] >= module.total_steps
    return out_of_steps or (minutes is not None and seconds >= 60 * minutes)


def _needed_bytes(model: RegistrationNetwork) -> int:
    """Two checkpoints and one more while it is written, with two moments of Adam each, and two weights files."""
    return (3 * 3 + 2 * 2) * sum(tensor.nbytes for tensor in model.state_dict().values()) + 10_000_000


def _strategy(settings: TrainSettings) -> str:
    return "ddp" if settings.strategy == "auto" and settings.devices * settings.nodes > 1 else settings.strategy


def _precision(settings: TrainSettings) -> Any:
    if settings.precision == "mixed":
        if settings.accelerator == "cpu" or not torch.cuda.is_available():
            return "32-true"
        return "bf16-mixed" if torch.cuda.is_bf16_supported() else "16-mixed"
    return "32-true" if settings.precision == "full" else settings.precision


@contextlib.contextmanager
def _quiet_lightning() -> Iterator[None]:
    """Lightning advertises, counts devices and guesses at mistakes; errors still come through."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric", "lightning")]
    levels = [each.level for each in loggers]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"lightning\.")
        warnings.filterwarnings("ignore", category=UserWarning, module=r"torch\.")
        for each in loggers:
            each.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for each, level in zip(loggers, levels, strict=True):
                each.setLevel(level)


@contextlib.contextmanager
def _signals_as_before() -> Iterator[None]:
    """Lightning leaves handlers of its own behind, which would swallow what ends the process later."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _require_lightning() -> None:
    try:
        import lightning.pytorch  # noqa: F401
        import tensorboard  # type: ignore[import-untyped]  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"training needs {error.name}: pip install 'p2plane[train]' (from a checkout: pip install '.[train]')"
        ) from error
