"""What no motion and no flipped normal changes: lengths, folded angles, and one sign."""

from __future__ import annotations

import math

import torch
from torch import Tensor

EDGE_CHANNELS = 5
PAIR_CHANNELS = 16
_DISTANCES = 8  # Gaussian bumps over the distance
_FARTHEST = 2.8  # where the last of them stands, in units of the cloud's radius


def edge_invariants(offsets: Tensor, normals: Tensor, other_normals: Tensor) -> Tensor:
    """(..., 5) of points with normals n and others with normals m at offsets d: what a point sees of a neighbour.

    The distance; the angles of n and d, m and d, n and m, folded to [0, 90] degrees and divided by 90; and
    ``(n . d)(m . d)(n . m)`` for the direction d, which tells a bend from a step and does not change when n, m or d
    flips.

    Args:
        offsets, normals, other_normals: (..., 3), broadcast. Where one is zero, its cosines are.
    """
    length = torch.linalg.vector_norm(offsets, dim=-1, keepdim=True)
    cosines = _cosines(offsets / length.clamp_min(1e-9), normals, other_normals)
    return torch.cat([length, _folded(cosines), cosines.prod(-1, keepdim=True)], dim=-1)


def pair_invariants(points: Tensor, normals: Tensor) -> Tensor:
    """(B, S, 16, S) of all pairs of points, channel-second: what attention sees of a pair.

    Eight bumps over the distance and the distance itself, the three folded angles, their squared cosines, and the sign
    of `edge_invariants`.

    Args:
        points: (B, S, 3), in units of the cloud's radius.
        normals: (B, S, 3).
    """
    length = torch.cdist(points, points)
    heights = normals @ points.mT  # n_i . p_j
    own = heights.diagonal(dim1=1, dim2=2)
    inverse = 1 / length.clamp_min(1e-9)
    cosines = [(heights - own[..., None]) * inverse, (own[:, None] - heights.mT) * inverse, normals @ normals.mT]
    sign = cosines[0] * cosines[1] * cosines[2]
    bump = (_DISTANCES - 1) / _FARTHEST
    bumps = [torch.exp(-(length * bump - center).square()) for center in range(_DISTANCES)]
    angles, squares = [_folded(each) for each in cosines], [each.square() for each in cosines]
    return torch.stack([*bumps, length, *angles, *squares, sign], dim=2)


def _cosines(directions: Tensor, normals: Tensor, other_normals: Tensor) -> Tensor:
    """(..., 3) of n and d, m and d, n and m."""
    pairs = ((normals, directions), (other_normals, directions), (normals, other_normals))
    return torch.stack(torch.broadcast_tensors(*((a * b).sum(-1) for a, b in pairs)), dim=-1)


def _folded(cosines: Tensor) -> Tensor:
    return cosines.abs().clamp_max(1.0).acos() * (2 / math.pi)
