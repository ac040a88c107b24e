"""One step of training, as Lightning wants it told."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.utils.data import DataLoader

from p2plane.data.pair import PairBatch
from p2plane.evaluation.metrics import rotation_error, translation_error
from p2plane.networks.door import RegistrationNetwork
from p2plane.solve.alignment import Alignment
from p2plane.training.config import TrainSettings
from p2plane.training.data import Positions, TrainingData, loader

MOST_SKIPPED = 100
"""So many steps in a row without a finite gradient, and nothing is learned any more."""


class TrainingModule(LightningModule):
    """A network, its loss, its optimiser and its pairs.

    All that is random in a step depends on the seed, the step and the process, and on nothing before. A step whose
    gradient is not finite is skipped: neither weights, nor the optimiser, nor statistics change.

    Args:
        settings: of the training.
        model: the network, with the weights to start from.
        data: the streams.
    """

    def __init__(self, settings: TrainSettings, model: RegistrationNetwork, data: TrainingData) -> None:
        super().__init__()
        self.settings, self.model, self.data = settings, model, data
        self.loss = settings.loss.build()
        self.steps_per_epoch = max(1, len(data.train) // settings.batch_size)
        self.total_steps = settings.budget.total_steps(self.steps_per_epoch)
        self.factors = settings.schedule.factors(self.steps_per_epoch, self.total_steps)
        self.skipped = self.skipped_in_a_row = 0
        self.last: dict[str, float] = {}
        self._buffers_before: list[Tensor] = []

    def train_dataloader(self) -> DataLoader:
        """Batches from the step on at which the training stands."""
        settings, trainer = self.settings, self.trainer
        world, rank = trainer.world_size, trainer.global_rank
        sampler = Positions(settings.batch_size, start=trainer.global_step, rank=rank, world=world)
        return loader(self.data.train, sampler, settings.workers)

    def configure_optimizers(self) -> Any:
        """The optimiser, and its schedule by steps."""
        optimizer = self.settings.optimizer.build(self.model.parameters())
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, self.factors)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def training_step(self, batch: PairBatch, batch_idx: int) -> Tensor:
        """The loss of a batch."""
        torch.manual_seed(_seed(self.settings.seed, self.trainer.global_step, self.trainer.global_rank))
        self._buffers_before = [buffer.clone() for buffer in self.model.buffers()]
        alignment = aligned(self.model, batch)
        loss = self.loss(alignment, batch)
        self._note(loss.detach(), alignment.T_target_source.detach(), batch)
        return loss

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: Any = None, gradient_clip_algorithm: Any = None
    ) -> None:
        """Shorten the gradient; leave out the step where it is not finite."""
        limit = self.settings.gradient_clip
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), float("inf") if limit is None else limit)
        self.last["gradient"] = float(norm)
        if norm.isfinite():
            self.skipped_in_a_row = 0
            return
        optimizer.zero_grad(set_to_none=True)  # parameters without gradient are passed over
        for buffer, before in zip(self.model.buffers(), self._buffers_before, strict=True):
            buffer.copy_(before)
        self.skipped += 1
        self.skipped_in_a_row += 1
        if self.skipped_in_a_row >= MOST_SKIPPED:
            raise RuntimeError(
                f"the gradients of {MOST_SKIPPED} steps in a row were not finite, the last at step "
                f"{self.trainer.global_step}: try a lower optimizer.lr or a gradient_clip"
            )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """What is counted goes with the checkpoint."""
        checkpoint["p2plane"] = {"skipped": self.skipped, "skipped_in_a_row": self.skipped_in_a_row}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """And comes back with it."""
        self.skipped = checkpoint["p2plane"]["skipped"]
        self.skipped_in_a_row = checkpoint["p2plane"]["skipped_in_a_row"]

    def _note(self, loss: Tensor, T_estimate: Tensor, batch: PairBatch) -> None:
        self.last = {
            "loss": float(loss),
            "angle_deg": float(rotation_error(T_estimate, batch.T_target_source).mean().rad2deg()),
            "length": float(translation_error(T_estimate, batch.T_target_source).mean()),
        }


def aligned(model: RegistrationNetwork, batch: PairBatch) -> Alignment:
    """What a network makes of a batch; masks that hide nothing are left out, as they cost time."""
    masks = {
        name: None if mask.all() else mask
        for name, mask in (("source_mask", batch.source_mask), ("target_mask", batch.target_mask))
    }
    return model(batch.source, batch.target, batch.source_normals, batch.target_normals, **masks)


def _seed(*numbers: int) -> int:
    """One seed out of several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
