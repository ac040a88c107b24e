"""A few points that stand for a cloud, spread evenly over it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_AT_ONCE = 1024  # clouds up to this size have all distances computed at once


class Sample(NamedTuple):
    """Rows of the points that were taken."""

    indices: Tensor  # (B, K) int64
    mask: Tensor | None  # (B, K) bool, false where a cloud had no more points; None where none lacks any


def farthest_points(points: Tensor, count: int, mask: Tensor | None = None) -> Sample:
    """At most `count` points of each cloud, each the farthest from those before it.

    The first is the farthest from the centroid, so neither the order of the points nor a rigid motion changes which
    ones are taken, unless distances are equal.

    Args:
        points: (B, N, 3).
        count: at least 1; all points where there are fewer.
        mask: (B, N) bool, true where a point is present; where none is left, something is repeated with a false mask.

    Gradient: none; the choice is discrete.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    points = points.detach()  # gradient stops here: the choice is discrete
    count = min(count, points.shape[1])
    present = points.new_ones(points.shape[:2]) if mask is None else mask.to(points.dtype)
    centroid = (points * present[..., None]).sum(1, keepdim=True) / present.sum(1).clamp_min(1)[:, None, None]
    squares = torch.cdist(points, points).square_() if points.shape[1] <= _AT_ONCE else None
    nearest = (points - centroid).square().sum(-1)  # (B, N)
    if mask is not None:
        nearest = nearest.masked_fill(~mask, -1.0)
    clouds = torch.arange(len(points), device=points.device)
    indices = [nearest.argmax(1)]
    nearest = torch.where(nearest < 0, nearest, float("inf"))
    for _ in range(count - 1):
        last = indices[-1]
        if squares is None:
            from_last = (points - points[clouds, last][:, None]).square().sum(-1)
        else:
            from_last = squares[clouds, last]
        nearest = torch.minimum(nearest, from_last)
        indices.append(nearest.argmax(1))
    taken = torch.stack(indices, dim=1)
    return Sample(taken, None if mask is None else _first_time(mask, count))


def _first_time(mask: Tensor, count: int) -> Tensor:
    """(B, K) bool: as many as there are points in the cloud; what is taken after them repeats."""
    return torch.arange(count, device=mask.device) < mask.sum(1, keepdim=True)
