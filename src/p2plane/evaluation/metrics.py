"""How far an estimated motion is from the true one, in the ways that papers measure it.

They differ, so numbers of one kind must not be compared with numbers of another:

- `euler_summary`, of DCP and PRNet and so of the paper's tables: differences of the three 'zyx' Euler angles, in
  degrees. Simple, but one and the same rotation error gives other numbers at another pose, near 90 degrees about the
  middle axis they explode, and 359 degrees is far from 0. R2 compares with always answering the mean motion.
- `isotropic_summary`, of RPMNet: the angle of the rotation that is left, and the length of the translation that is
  left, which mean the same at every pose; and a Chamfer distance, which forgives what a symmetric shape forgives.
- `recall_summary`, of DeepGMR: how often the points end up near where they should, so that one failure counts as one,
  and not as its square.
- `overlap`, of Open3D: fitness and inlier RMSE need no truth. They say how well two clouds lie on each other, not
  whether that is right: a chair upside down on its own seat fits well too.

Everything per pair comes as tensors of the batch shape; a summary is a dictionary of numbers, with their units in the
names.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import roma
import torch
from torch import Tensor

from p2plane.geometry import se3
from p2plane.geometry.neighbors import knn


def rotation_error(T_estimate: Tensor, T_true: Tensor) -> Tensor:
    """Angle between two rotations, in radians.

    Stable near zero: ``2 asin(|R_estimate - R_true|_F / (2 sqrt(2)))``.

    Args:
        T_estimate: (..., 4, 4) estimated ``T_target_source``.
        T_true: (..., 4, 4) true ``T_target_source``.

    Returns:
        (...) angles in ``[0, pi]``.

    Gradient: both arguments, away from angles 0 and pi.
    """
    _check(T_estimate, T_true)
    apart = (T_estimate - T_true)[..., :3, :3].flatten(-2).norm(dim=-1)
    return 2 * torch.asin((apart / math.sqrt(8)).clamp_max(1.0))


def translation_error(T_estimate: Tensor, T_true: Tensor) -> Tensor:
    """(...) lengths of the difference of two translations; arguments as in `rotation_error`.

    It is the same as the length of what is left, ``T_true^-1 T_estimate``, which RPMNet takes.
    """
    _check(T_estimate, T_true)
    return (T_estimate - T_true)[..., :3, 3].norm(dim=-1)


def euler_angles_deg(T: Tensor, sequence: str = "zyx") -> Tensor:
    """(..., 3) angles in degrees about the axes of the target, in the order of the sequence."""
    R = T[..., :3, :3]
    angles = roma.rotmat_to_euler(sequence, R.reshape(-1, 3, 3).double(), degrees=True, as_tuple=False)
    return angles.reshape(*T.shape[:-2], 3)


def euler_errors_deg(T_estimate: Tensor, T_true: Tensor, sequence: str = "zyx") -> Tensor:
    """(..., 3) differences of Euler angles in degrees, not wrapped around; arguments as in `rotation_error`."""
    _check(T_estimate, T_true)
    return euler_angles_deg(T_estimate, sequence) - euler_angles_deg(T_true, sequence)


def euler_summary(T_estimate: Tensor, T_true: Tensor, sequence: str = "zyx") -> dict[str, float]:
    """The numbers of DCP and PRNet, and of the paper's tables: MSE, RMSE, MAE and R2 of Euler degrees and translations.

    Args:
        T_estimate: (B, 4, 4) estimated ``T_target_source``.
        T_true: (B, 4, 4) true ``T_target_source``.
        sequence: "zyx" as published; RPMNet tabulates "xyz".
    """
    _check(T_estimate, T_true)
    true_angles = euler_angles_deg(T_true, sequence).reshape(-1, 3)
    angles = euler_angles_deg(T_estimate, sequence).reshape(-1, 3)
    true_t, t = (T[..., :3, 3].reshape(-1, 3).double() for T in (T_true, T_estimate))
    units = {"mse": "mse_deg2", "rmse": "rmse_deg", "mae": "mae_deg", "r2": "r2"}
    rotation = {f"rotation_{units[name]}": value for name, value in _regression(angles, true_angles).items()}
    return rotation | {f"translation_{name}": value for name, value in _regression(t, true_t).items()}


def isotropic_summary(T_estimate: Tensor, T_true: Tensor) -> dict[str, float]:
    """The isotropic numbers of RPMNet: mean and root mean square of the angle and of the translation that are left."""
    angle = rotation_error(T_estimate.double(), T_true.double()).rad2deg()
    length = translation_error(T_estimate.double(), T_true.double())
    return {
        "angle_mean_deg": float(angle.mean()),
        "angle_rms_deg": _root_mean_square(angle),
        "length_mean": float(length.mean()),
        "length_rms": _root_mean_square(length),
    }


def modified_chamfer(
    T_estimate: Tensor, T_true: Tensor, source: Tensor, target: Tensor, whole: Tensor, *, mask: Tensor | None = None
) -> Tensor:
    """RPMNet's distance of an estimate from the truth that forgives a symmetric shape its symmetries.

    Mean squared distance of the moved source to the whole, clean shape, plus that of the target to the whole shape
    moved by what the estimate got wrong, ``T_estimate T_true^-1``.

    Args:
        T_estimate: (..., 4, 4) estimated ``T_target_source``.
        T_true: (..., 4, 4) true ``T_target_source``.
        source: (..., N, 3) points, noisy or cropped as they were.
        target: (..., M, 3) points likewise.
        whole: (..., K, 3) the clean, full shape in the target frame.
        mask: (..., K) bool, true where a point of the whole shape is present.

    Returns:
        (...) sums of mean squared distances.
    """
    _check(T_estimate, T_true)
    misplaced = se3.apply(T_estimate @ se3.inverse(T_true), whole)
    there = knn(se3.apply(T_estimate, source), whole, 1, mask=mask).distances.squeeze(-1)
    back = knn(target, misplaced, 1, mask=mask).distances.squeeze(-1)
    return there.square().mean(-1) + back.square().mean(-1)


def mean_displacement(T_estimate: Tensor, T_true: Tensor, source: Tensor) -> Tensor:
    """(...) mean distance between the source (..., N, 3) moved by the estimate and by the truth."""
    _check(T_estimate, T_true)
    return (se3.apply(T_estimate, source) - se3.apply(T_true, source)).norm(dim=-1).mean(-1)


def recall_summary(
    T_estimate: Tensor, T_true: Tensor, source: Tensor, *, threshold: float = 0.2, points: int = 100
) -> dict[str, float]:
    """The numbers of DeepGMR: mean angle and translation error, mean displacement, and recall.

    Args:
        T_estimate: (..., 4, 4) estimated ``T_target_source``.
        T_true: (..., 4, 4) true ``T_target_source``.
        source: (..., N, 3) points; the first `points` of them count.
        threshold: a pair is recalled if its mean displacement, which DeepGMR calls RMSE, is less.
    """
    displacement = mean_displacement(T_estimate, T_true, source[..., :points, :])
    return {
        "angle_mean_deg": float(rotation_error(T_estimate, T_true).rad2deg().mean()),
        "length_mean": float(translation_error(T_estimate, T_true).mean()),
        "displacement_mean": float(displacement.mean()),
        "recall": float((displacement < threshold).double().mean()),
    }


class Overlap(NamedTuple):
    """How well two clouds lie on each other."""

    fitness: Tensor  # (...) share of the source points that have a target point near
    inlier_rmse: Tensor  # (...) root mean square distance of those; zero where there are none


def overlap(
    T_estimate: Tensor, source: Tensor, target: Tensor, max_distance: float, *, mask: Tensor | None = None
) -> Overlap:
    """Fitness and inlier RMSE of the moved source, as Open3D defines them.

    Args:
        T_estimate: (..., 4, 4) estimated ``T_target_source``.
        source: (..., N, 3).
        target: (..., M, 3).
        max_distance: up to this far a target point is near.
        mask: (..., M) bool, true where a target point is present.
    """
    if not max_distance > 0:
        raise ValueError(f"max_distance must be positive, got {max_distance}")
    distances = knn(se3.apply(T_estimate, source), target, 1, mask=mask).distances.squeeze(-1)
    near = distances <= max_distance
    count = near.sum(-1)
    squares = torch.where(near, distances, 0.0).square().sum(-1)
    return Overlap(near.to(distances.dtype).mean(-1), (squares / count.clamp_min(1)).sqrt())


def _regression(estimate: Tensor, true: Tensor) -> dict[str, float]:
    """Errors over all rows and columns of (B, 3) tensors; R2 is the mean over columns, 1 - residual / variance.

    A column that never varies has R2 one where the estimate is exact, else zero.
    """
    error = estimate - true
    residual, variance = error.square().sum(0), (true - true.mean(0)).square().sum(0)
    r2 = torch.where(variance > 0, 1 - residual / variance.clamp_min(1e-300), (residual == 0).double())
    mse = float(error.square().mean())
    return {"mse": mse, "rmse": math.sqrt(mse), "mae": float(error.abs().mean()), "r2": float(r2.mean())}


def _root_mean_square(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def _check(T_estimate: Tensor, T_true: Tensor) -> None:
    for name, T in (("T_estimate", T_estimate), ("T_true", T_true)):
        if T.shape[-2:] != (4, 4):
            raise ValueError(f"{name} must have shape (..., 4, 4), got {tuple(T.shape)}")
    if T_estimate.shape != T_true.shape:
        expected, got = tuple(T_true.shape), tuple(T_estimate.shape)
        raise ValueError(f"T_estimate must have the shape of T_true, {expected}, got {got}")
