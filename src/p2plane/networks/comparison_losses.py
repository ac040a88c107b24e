"""What DeepGMR and PointNetLK are trained with, as published."""

from __future__ import annotations

import torch
from torch import Tensor

from p2plane.geometry import se3
from p2plane.solve.alignment import Alignment


def deepgmr_loss(result: Alignment, T_true: Tensor) -> Tensor:
    """() mean squared entry of ``T T_true^-1 - I`` plus that of ``T_reverse T_true - I``.

    Args:
        result: what DeepGMR returned.
        T_true: (B, 4, 4) true poses.

    Gradient: both arguments.
    """
    there = result.T_target_source @ se3.inverse(T_true)
    back = result.rounds[-1].extras["T_reverse"] @ T_true
    return (there - _identity_like(there)).square().mean() + (back - _identity_like(back)).square().mean()


def pointnetlk_loss(result: Alignment, T_true: Tensor) -> Tensor:
    """() pose loss plus feature loss.

    The first is the mean over the batch of the squared Frobenius norm of ``T T_true^-1 - I``. The second is the sum,
    over batch and channels, of the squared change of the residual in the last iteration; of the squared residual where
    there was one only.

    Args:
        result: what PointNetLK returned.
        T_true: (B, 4, 4) true poses.

    Gradient: both arguments.
    """
    defect = result.T_target_source @ se3.inverse(T_true)
    residuals = [each.extras["residual"] for each in result.rounds]
    change = residuals[-1] - residuals[-2] if len(residuals) > 1 else residuals[-1]
    return (defect - _identity_like(defect)).square().sum((-2, -1)).mean() + change.square().sum()


def _identity_like(T: Tensor) -> Tensor:
    return torch.eye(4, dtype=T.dtype, device=T.device)
