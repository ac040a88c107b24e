"""What RPMNet is trained with, as published."""

from __future__ import annotations

from torch import Tensor

from p2plane.geometry import se3
from p2plane.solve.alignment import Alignment
from p2plane.solve.inputs import one_of


def rpmnet_loss(
    alignment: Alignment,
    source: Tensor,
    T_true: Tensor,
    source_mask: Tensor | None = None,
    target_mask: Tensor | None = None,
    *,
    distance: str = "mae",
    outlier_weight: float = 0.01,
    discount: float = 0.5,
) -> Tensor:
    """() the sum over rounds, each round counting `discount` times as much as the one after it.

    Of each round: the mean difference of coordinates between the source moved by its pose and by the true one, plus
    `outlier_weight` times what rows and columns of its match lack, in the mean, to a sum of one. Every pair of a batch
    counts the same.

    Args:
        alignment: of `RPMNet`, of B pairs.
        source: (B, N, 3).
        T_true: (B, 4, 4) the true ``T_target_source``.
        source_mask: (B, N) bool, true where a point is present.
        target_mask: (B, M) bool likewise.
        distance: "mae" for absolute differences, "mse" for squared ones.

    Gradient: poses and matches of the alignment, source, T_true.
    """
    one_of("distance", distance, ("mae", "mse"))
    truth = se3.apply(T_true, source)
    total = source.new_zeros(())
    for last in alignment.rounds:
        assert last.match is not None
        differences = se3.apply(last.T_target_source, source) - truth
        errors = (differences.abs() if distance == "mae" else differences.square()).mean(-1)  # (B, N)
        lacking = _mean(1 - last.match.sum(1), target_mask) + _mean(1 - last.match.sum(2), source_mask)
        total = discount * total + _mean(errors, source_mask) + outlier_weight * lacking
    return total


def _mean(values: Tensor, mask: Tensor | None) -> Tensor:
    """() mean over the batch of the means over the present points of values (B, N)."""
    if mask is None:
        return values.mean()
    return ((values * mask).sum(-1) / mask.sum(-1)).mean()
