"""Rigid motions of space, and the conventions of the whole library.

- Points are rows, (..., N, 3). Transforms are (..., 4, 4) and act on columns; `apply` hides the transpose.
- ``T_target_source`` maps source coordinates to target coordinates, so ``T_a_c = T_a_b @ T_b_c``: inner names meet.
- A tangent vector is ``(omega, v)``, rotation first, in the frame the transform maps to. It acts from the left:
  ``[exp(omega) R | exp(omega) t + v]``. Covariances of poses are in these six coordinates.
- Weights are non-negative, and zero means absent.
- Angles are radians.
- Functions take any leading batch shape; dtype and device come from the inputs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from p2plane.geometry import so3

_LAST_ROW = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64)


def from_rotation_translation(R: Tensor, t: Tensor) -> Tensor:
    """Transform ``p -> R p + t``.

    Args:
        R: (..., 3, 3) rotations.
        t: (..., 3) translations.

    Returns:
        (..., 4, 4) transforms.

    Gradient: both arguments.
    """
    return homogeneous(torch.cat([R, t[..., None]], dim=-1))


def homogeneous(T: Tensor) -> Tensor:
    """(..., 4, 4) transforms from their first three rows (..., 3, 4)."""
    return torch.cat([T, _LAST_ROW.to(T).expand(*T.shape[:-2], 1, 4)], dim=-2)


def apply(T_b_a: Tensor, points_a: Tensor) -> Tensor:
    """Points moved by a transform.

    Args:
        T_b_a: (..., 4, 4) transforms.
        points_a: (..., N, 3) points in frame a.

    Returns:
        (..., N, 3) the same points in frame b.

    Gradient: both arguments.
    """
    return points_a @ T_b_a[..., :3, :3].mT + T_b_a[..., None, :3, 3]


def rotate(T_b_a: Tensor, directions_a: Tensor) -> Tensor:
    """Directions, such as normals, turned by a transform; shapes as in `apply`."""
    return directions_a @ T_b_a[..., :3, :3].mT


def inverse(T_b_a: Tensor) -> Tensor:
    """``T_a_b`` (..., 4, 4) by transposing the rotation. Gradient: the argument."""
    R_a_b = T_b_a[..., :3, :3].mT
    return from_rotation_translation(R_a_b, -(R_a_b @ T_b_a[..., :3, 3:]).squeeze(-1))


def exp(twist: Tensor) -> Tensor:
    """Transform ``[exp(omega) | v]`` of a tangent vector (omega, v), so that ``exp(twist) @ T`` is the left step.

    The translation is taken as it is: this is the chart of the conventions above, not the group's own exponential,
    which would bend it.

    Args:
        twist: (..., 6) tangent vectors.

    Returns:
        (..., 4, 4) transforms.

    Gradient: twist.
    """
    return from_rotation_translation(so3.exp(twist[..., :3]), twist[..., 3:])


def log(T: Tensor) -> Tensor:
    """Tangent vector (..., 6) with ``exp(log(T)) == T``. Gradient: T, away from the angle pi."""
    return torch.cat([so3.log(T[..., :3, :3]), T[..., :3, 3]], dim=-1)


def random(
    *batch: int,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Tensor:
    """(*batch, 4, 4) transforms: rotation uniform over SO(3), translation standard normal."""
    R = so3.random(*batch, generator=generator, dtype=dtype, device=device)
    t = torch.randn(*batch, 3, generator=generator, dtype=dtype, device=device)
    return from_rotation_translation(R, t)
