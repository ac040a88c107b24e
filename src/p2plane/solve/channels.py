"""The pairs as a pass over the points reads them: channel first, and so many points at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from p2plane.solve.arrays import may_write_in_place
from p2plane.solve.inputs import Pairs

POINTS_AT_ONCE = 1 << 14  # what a pass allocates stays near the cache, however many points there are


class Channels(NamedTuple):
    """Pairs channel first, absent points zero."""

    points: Tensor  # (B, 6, N) of the source, and under them of the target: what moves the one moves the other
    metric: Tensor | None  # None, (B, 3, N), not always contiguous, or (B, 3, 3, N)
    weights: Tensor  # (B, 1, N)

    @property
    def source(self) -> Tensor:
        """(B, 3, N)."""
        return self.points[:, :3]

    @property
    def target(self) -> Tensor:
        """(B, 3, N)."""
        return self.points[:, 3:]

    def double(self) -> Channels:
        """The same in float64."""
        metric = None if self.metric is None else self.metric.double()
        return Channels(self.points.double(), metric, self.weights.double())


def as_channels(pairs: Pairs, dtype: torch.dtype | None = None, centers: Tensor | None = None) -> Channels:
    """The pairs channel first, as precise as the points unless a dtype is given, about centres (B, 6, 1) or none."""
    metric, dtype = pairs.metric, dtype or pairs.precision
    if metric is not None and metric.ndim == 3:
        metric = _present(metric.mT.to(dtype), pairs.mask)
    elif metric is not None:
        metric = _present(metric.flatten(2).mT.to(dtype), pairs.mask).contiguous().unflatten(1, (3, 3))
        metric = (metric + metric.transpose(1, 2)) / 2  # the energy sees no more of W_i than this
    return Channels(_present(_points(pairs, dtype, centers), pairs.mask), metric, _weights(pairs, dtype))


def _points(pairs: Pairs, dtype: torch.dtype, centers: Tensor | None) -> Tensor:
    """(B, 6, N) both clouds."""
    clouds = [pairs.source.mT, pairs.target.mT]
    if centers is None:
        return torch.cat(clouds, dim=1).to(dtype)
    if not may_write_in_place():
        return torch.cat(clouds, dim=1).to(dtype) - centers.to(dtype)
    points = torch.empty(centers.shape[0], 6, pairs.source.shape[1], dtype=dtype, device=centers.device)
    for cloud, center, out in zip(clouds, centers.to(dtype).split(3, 1), points.split(3, 1), strict=True):
        torch.sub(cloud, center, out=out)  # moves and transposes in one go
    return points


def is_one_block(pairs: Pairs) -> bool:
    """Whether the points are few enough for one pass over all of them at once."""
    batch, count = pairs.source.shape[:2]
    return batch * count <= POINTS_AT_ONCE


def blocks_of_pairs(pairs: Pairs) -> Iterator[slice]:
    """The batch in parts of so many pairs that their points can be read at once; one by one, if not even those can."""
    batch, count = pairs.source.shape[:2]
    size = max(1, POINTS_AT_ONCE // max(1, count))
    return (slice(i, i + size) for i in range(0, batch, size))


def blocks_of_points(pairs: Pairs) -> Iterator[slice]:
    """The points in parts that can be read at once."""
    return (slice(i, i + POINTS_AT_ONCE) for i in range(0, pairs.source.shape[1], POINTS_AT_ONCE))


def apply_metric(metric: Tensor | None, vectors: Tensor) -> Tensor:
    """``W_i v_i`` (B, 3, N) for vectors (B, 3, N) and a metric as in `Channels`."""
    if metric is None:
        return vectors
    if metric.ndim == 3:
        return metric * (metric * vectors).sum(1, keepdim=True)
    return (metric * vectors[:, None]).sum(2)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """(..., N) the dot products of vectors (..., 3, N): faster than a product and its sum, and smaller."""
    (a1, a2, a3), (b1, b2, b3) = a.unbind(-2), b.unbind(-2)
    return torch.addcmul(torch.addcmul(a1 * b1, a2, b2), a3, b3)


def _weights(pairs: Pairs, dtype: torch.dtype) -> Tensor:
    """(B, 1, N) weights; zero where the mask says absent."""
    weights = pairs.weights
    if weights is None:
        weights = torch.ones(pairs.source.shape[:2], dtype=dtype, device=pairs.source.device)
    return _present(weights[:, None].to(dtype), pairs.mask)


def _present(channels: Tensor, mask: Tensor | None) -> Tensor:
    """The channels (B, C, N), zero where the mask says absent, whatever stood there."""
    return channels if mask is None else channels.masked_fill(~mask[:, None], 0.0)
