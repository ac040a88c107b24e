"""Unit quaternions (x, y, z, w) and the rotations that they stand for; q and -q are the same one."""

from __future__ import annotations

import torch
from torch import Tensor


def rotation_of(quaternion: Tensor) -> Tensor:
    """Rotation of a quaternion.

    Args:
        quaternion: (..., 4) of unit length.

    Returns:
        (..., 3, 3) rotations.

    Gradient: quaternion.
    """
    x, y, z, w = quaternion.unbind(-1)
    return _matrix(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def quaternion_of(R: Tensor) -> Tensor:
    """Quaternion of a rotation, the one with w at least zero.

    The rows of ``4 q q^T`` are multiples of q. The one with the largest diagonal entry is far from zero.

    Args:
        R: (..., 3, 3) rotations.

    Returns:
        (..., 4) of unit length.

    Gradient: R, away from half turns.
    """
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = (row.unbind(-1) for row in R.unbind(-2))
    rows = _matrix(
        [
            [1 + xx - yy - zz, xy + yx, xz + zx, zy - yz],
            [xy + yx, 1 - xx + yy - zz, yz + zy, xz - zx],
            [xz + zx, yz + zy, 1 - xx - yy + zz, yx - xy],
            [zy - yz, xz - zx, yx - xy, 1 + xx + yy + zz],
        ]
    )
    largest = rows.diagonal(dim1=-2, dim2=-1).argmax(-1)
    row = rows.take_along_dim(largest[..., None, None], dim=-2).squeeze(-2)
    row = row.where(row[..., 3:] >= 0, -row)
    return row / row.norm(dim=-1, keepdim=True)


def _matrix(rows: list[list[Tensor]]) -> Tensor:
    return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)
