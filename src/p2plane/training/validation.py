"""How good a network is by now, on pairs that it is not trained on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from p2plane.data.pair import PairBatch
from p2plane.evaluation.metrics import euler_summary, isotropic_summary, rotation_error
from p2plane.networks.door import RegistrationNetwork
from p2plane.training.data import PairStream, loader
from p2plane.training.module import TrainingModule, aligned


def validate(module: TrainingModule) -> dict[str, float]:
    """Errors over the validation pairs, shared among the processes; every process gets them all."""
    settings, trainer = module.settings, module.trainer
    pairs, world = settings.validation.pairs, trainer.world_size
    mine = [position % pairs for position in range(trainer.global_rank, -(-pairs // world) * world, world)]
    poses = measure(module.model, module.data.validation, mine, settings.batch_size // world, module.device)
    if world > 1:
        gathered: Any = module.all_gather(poses)  # (world, n, 2, 4, 4)
        poses = gathered.transpose(0, 1).flatten(0, 1)
    return summary(*poses[:pairs].cpu().unbind(1))


def summary(T_estimate: Tensor, T_true: Tensor) -> dict[str, float]:
    """All errors of estimated poses (B, 4, 4)."""
    median = rotation_error(T_estimate, T_true).rad2deg().median()
    numbers = isotropic_summary(T_estimate, T_true) | euler_summary(T_estimate, T_true)
    return {"angle_median_deg": float(median)} | numbers


@torch.no_grad()
def measure(
    model: RegistrationNetwork, stream: PairStream, positions: list[int], batch_size: int, device: Any
) -> Tensor:
    """(n, 2, 4, 4) estimated and true poses of some pairs; the network goes on in the mode in which it was."""
    was_training = model.training
    model.eval()
    batches = [positions[start : start + batch_size] for start in range(0, len(positions), batch_size)]
    poses = []
    try:
        for batch in loader(stream, batches, workers=0):
            moved: PairBatch = batch.to(device)
            alignment = aligned(model, moved)
            poses.append(torch.stack([alignment.T_target_source, moved.T_target_source], dim=1))
    finally:
        model.train(was_training)
    return torch.cat(poses)
