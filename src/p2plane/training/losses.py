"""The losses that the networks were published with, and the paper's; all of them by name at the end."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import torch
from torch import Tensor

from p2plane.data.pair import PairBatch
from p2plane.networks.comparison_losses import deepgmr_loss, pointnetlk_loss
from p2plane.networks.rpmnet_loss import rpmnet_loss
from p2plane.networks.tessera_loss import tessera_loss
from p2plane.solve.alignment import Alignment


def rigid_motion_loss(result: Alignment, T_true: Tensor) -> Tensor:
    """The paper's loss: ``|R^T R_true - I|_F^2 + |t - t_true|^2``, in the mean over poses (B, 4, 4).

    Gradient: both arguments.
    """
    T = result.T_target_source
    turned = T[..., :3, :3].mT @ T_true[..., :3, :3] - _identity(T_true)
    return turned.square().sum((-2, -1)).mean() + (T - T_true)[..., :3, 3].square().sum(-1).mean()


def motion_loss(T_target_source: Tensor, T_true: Tensor) -> Tensor:
    """Mean squared entry of ``R^T R_true - I`` plus that of ``t - t_true``, of poses (B, 4, 4).

    Gradient: both arguments.
    """
    turned = T_target_source[..., :3, :3].mT @ T_true[..., :3, :3] - _identity(T_true)
    return turned.square().mean() + (T_target_source - T_true)[..., :3, 3].square().mean()


def dcp_loss(result: Alignment | Tensor, T_true: Tensor, *, cycle_weight: float = 0.1) -> Tensor:
    """The loss of DCP: of the motion, and of the cycle if the network found the reverse too (``DCPConfig.cycle``).

    Args:
        result: what DCP returned, or poses (B, 4, 4) alone.
        T_true: (B, 4, 4) true poses.
        cycle_weight: of the mean squared entries of ``R_ba R_ab - I`` and, as published, ``R_ba^T t_ab + t_ba``.

    Gradient: both arguments.
    """
    if isinstance(result, Tensor):
        return motion_loss(result, T_true)
    T_ab = result.T_target_source
    loss = motion_loss(T_ab, T_true)
    T_ba = result.rounds[-1].extras.get("T_source_target") if result.rounds else None
    if T_ba is None:
        return loss
    turned = T_ba[:, :3, :3] @ T_ab[:, :3, :3] - _identity(T_true)
    shifted = T_ba[:, :3, :3].mT @ T_ab[:, :3, 3:] + T_ba[:, :3, 3:]
    return loss + cycle_weight * (turned.square().mean() + shifted.square().mean())


def prnet_loss(
    result: Alignment,
    T_true: Tensor,
    *,
    discount: float = 0.9,
    cycle_weight: float = 0.1,
    disparity_weight: float = 0.1,
) -> Tensor:
    """The loss of PRNet: over its rounds, ``discount^i`` times motion, feature disparity and cycle.

    The motion is the one from the first source to the target; the cycle is that of each round alone: the mean squared
    entries of ``R_ab R_ba - I`` and, as published, ``t_ab + t_ba``.

    Args:
        result: what PRNet returned.
        T_true: (B, 4, 4) true poses.
        discount: of each further round.
        cycle_weight: of the cycle.
        disparity_weight: of the mean disparity.

    Gradient: both arguments.
    """
    total = T_true.new_zeros(())
    for i, each in enumerate(result.rounds):
        T_ab, T_ba = each.extras["T_step"], each.extras["T_step_reverse"]
        turned = T_ab[:, :3, :3] @ T_ba[:, :3, :3] - _identity(T_true)
        cycle = turned.square().mean() + (T_ab + T_ba)[:, :3, 3].square().mean()
        motion = motion_loss(each.T_target_source, T_true)
        disparity = each.extras["disparity"].mean()
        total = total + discount**i * (motion + disparity_weight * disparity + cycle_weight * cycle)
    return total


def _identity(like: Tensor) -> Tensor:
    return torch.eye(3, dtype=like.dtype, device=like.device)


def _by_truth(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A loss of an alignment and a batch out of one of an alignment and the true poses."""

    @wraps(loss)
    def of_batch(alignment: Alignment, batch: PairBatch, **options: float) -> Tensor:
        return loss(alignment, batch.T_target_source, **options)

    return of_batch


@wraps(rpmnet_loss)
def _rpmnet(alignment: Alignment, batch: PairBatch, **options: float | str) -> Tensor:
    masks = batch.source_mask, batch.target_mask
    return rpmnet_loss(alignment, batch.source, batch.T_target_source, *masks, **options)  # type: ignore[arg-type]


@wraps(tessera_loss)
def _tessera(alignment: Alignment, batch: PairBatch, **options: float) -> Tensor:
    masks = batch.source_mask, batch.target_mask
    return tessera_loss(alignment, batch.source, batch.T_target_source, *masks, **options)  # type: ignore[arg-type]


LOSSES: dict[str, Callable[..., Tensor]] = {
    "motion": _by_truth(rigid_motion_loss),
    "dcp": _by_truth(dcp_loss),
    "prnet": _by_truth(prnet_loss),
    "rpmnet": _rpmnet,
    "deepgmr": _by_truth(deepgmr_loss),
    "pointnetlk": _by_truth(pointnetlk_loss),
    "tessera": _tessera,
}
"""Losses of an `Alignment` and a `PairBatch`; keyword arguments are settings of a config."""
