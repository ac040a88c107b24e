"""One row of numbers for each pair: the pose, the true pose, and how far apart they are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from p2plane.data.pair import Pair
from p2plane.evaluation import metrics

POSE = tuple(f"T_{row}{column}" for row in range(4) for column in range(4))
TRUE_POSE = tuple(f"true_{row}{column}" for row in range(4) for column in range(4))
EULER = ("euler_z_deg", "euler_y_deg", "euler_x_deg")
TRANSLATION = ("error_x", "error_y", "error_z")
MEASURES = ("angle_deg", "length", "chamfer", "displacement", "fitness", "seconds")
COLUMNS = ("index", *POSE, *TRUE_POSE, *EULER, *TRANSLATION, *MEASURES, "converged", "flags")

NEAR = 0.05
"""A point of the moved source counts for the fitness if a target point is so near, for shapes in the unit sphere."""
DISPLACED_POINTS = 100
"""The mean displacement is that of the first so many points, as DeepGMR takes it."""


def measured_row(index: int, pair: Pair, T_estimate: Tensor, converged: bool, seconds: float) -> dict[str, Any]:
    """The row of one pair.

    Args:
        index: of the pair in its test set.
        pair: with its whole shape.
        T_estimate: (4, 4) estimated ``T_target_source``; where it is not finite, the identity stands for it and a flag
            says so.
        converged: what the method says of itself.
        seconds: that the method took.
    """
    flags = []
    if not T_estimate.isfinite().all():
        T_estimate, converged = torch.eye(4), False
        flags.append("not-finite")
    T, T_true = T_estimate.double(), pair.T_target_source.double()
    numbers = [*T.flatten().tolist(), *T_true.flatten().tolist(), *metrics.euler_errors_deg(T, T_true).tolist()]
    numbers += [*(T - T_true)[:3, 3].tolist(), *_measures(pair, T, T_true).tolist(), seconds]
    names = (*POSE, *TRUE_POSE, *EULER, *TRANSLATION, *MEASURES)
    row: dict[str, Any] = {"index": index, **dict(zip(names, numbers, strict=True))}
    return row | {"converged": int(converged), "flags": ";".join(flags)}


def _measures(pair: Pair, T: Tensor, T_true: Tensor) -> Tensor:
    """(5,) angle in degrees, length, Chamfer distance, displacement and fitness."""
    assert pair.whole is not None
    source, target, whole = (points.double() for points in (pair.source, pair.target, pair.whole))
    return torch.stack(
        [
            metrics.rotation_error(T, T_true).rad2deg(),
            metrics.translation_error(T, T_true),
            metrics.modified_chamfer(T, T_true, source, target, whole),
            metrics.mean_displacement(T, T_true, source[:DISPLACED_POINTS]),
            metrics.overlap(T, source, target, NEAR).fitness,
        ]
    )
