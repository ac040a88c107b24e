"""One point for each cube of a grid: large clouds made small, and dense ones even."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from p2plane.geometry.normals import _principal

_FINEST = 2.0**-60  # of the extent: the edge of a voxel that still has an int64 for its place on the grid

_AT_ONCE = 1 << 15  # voxels whose normals are found while they are in the cache


class Thinned(NamedTuple):
    """A cloud with one point a voxel, by two choices: the mean of what a voxel holds, or one of the points themselves.

    Voxels come in the order of their places on the grid, which does not depend on the order of the points.
    """

    points: Tensor  # (K, 3) the mean of each voxel's points
    normals: Tensor | None  # (K, 3) the unit direction nearest to its normals, zero where there are none
    indices: Tensor  # (K,) int64, the row of the point that is nearest to the mean
    voxels: Tensor  # (N,) int64, the row here to which each point went
    counts: Tensor  # (K,) int64, how many points went there


def voxel_thin(points: Tensor, size: float, normals: Tensor | None = None) -> Thinned:
    """The cloud with one point for each occupied voxel of a grid that starts at the cloud's lowest corner.

    Normals are averaged as tensors ``n n^T``, so that flipped ones do not cancel; each result has the sign that most of
    its members agree with.

    Args:
        points: (N, 3), finite, anywhere.
        size: the edge of a voxel, positive.
        normals: (N, 3) of unit length, zero where a point has none.

    Gradient: points, to the means.
    """
    _refuse(points, size, normals)
    if len(points) == 0:
        empty = torch.zeros(0, dtype=torch.int64, device=points.device)
        return Thinned(points, normals, empty, empty, empty)
    corner = points.detach().amin(0).double()
    local = points.double() - corner
    # gradient stops here: which voxel a point falls into is discrete
    voxels, counts = _group(_places(local.detach(), size))
    voxels, counts = voxels.to(points.device), counts.to(points.device)
    means = _sums(local, voxels, len(counts)) / counts[:, None]
    indices = _nearest(local.detach(), means.detach(), voxels)
    thin_normals = None if normals is None else _mean_directions(normals.detach(), voxels, len(counts))
    return Thinned((means + corner).to(points.dtype), thin_normals, indices, voxels, counts)


def _places(local: Tensor, size: float) -> np.ndarray:
    """(3, N) int64 places on the grid of points (N, 3) whose lowest corner is the origin."""
    extent = float(local.max())
    edge = max(size, extent * _FINEST)
    return (local.mT / edge).floor().to(torch.int64).numpy(force=True)


def _group(places: np.ndarray) -> tuple[Tensor, Tensor]:
    """(N,) group of equal columns, in the order of the columns, and (K,) their sizes."""
    widths = [int(axis.max()) + 1 for axis in places]
    if math.prod(widths) < 2**63:
        x, y, z = places
        keys = (x * widths[1] + y) * widths[2] + z
    else:  # too many voxels to be numbered, so number the occupied columns, then the voxels
        columns = _ranks(_ranks(places[0])[0] * len(places[0]) + _ranks(places[1])[0])[0]
        keys = columns * len(columns) + _ranks(places[2])[0]
    groups, counts = _ranks(keys)
    return torch.from_numpy(groups), torch.from_numpy(counts)


def _ranks(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(N,) the rank of each key among the distinct ones, and (K,) how often each of those occurs."""
    order, ordered = _sorted(keys)
    first = np.empty(len(keys), dtype=bool)
    first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    ranks = np.empty_like(keys)
    ranks[order] = np.cumsum(first) - 1
    return ranks, np.diff(np.append(first.nonzero()[0], len(keys)))


def _sorted(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order that sorts keys that are not negative, and the sorted keys."""
    bits = max(1, (len(keys) - 1).bit_length())
    if int(keys.max()) >> (63 - bits):
        order = np.argsort(keys, kind="stable")
        return order, keys[order]
    # With the index in the lowest bits, one sort of plain integers does, which takes a fraction of the time.
    packed = np.sort((keys << bits) | np.arange(len(keys)))
    return packed & ((1 << bits) - 1), packed >> bits


def _sums(values: Tensor, voxels: Tensor, count: int) -> Tensor:
    """(K, C) sums over the voxels of values (N, C). Gradient: values."""
    if torch.is_grad_enabled() and values.requires_grad:
        return values.new_zeros(count, values.shape[1]).index_add(0, voxels, values)
    # Column by column, which takes a third of the time.
    return torch.stack([voxels.bincount(column, minlength=count) for column in values.unbind(1)], dim=1)


def _nearest(local: Tensor, means: Tensor, voxels: Tensor) -> Tensor:
    """(K,) the row of the point nearest to the mean of its voxel; the lowest of equally near ones."""
    squared = (local - means[voxels]).square().sum(-1)
    least = squared.new_full((len(means),), torch.inf).scatter_reduce(0, voxels, squared, "amin")
    rows = (squared == least[voxels]).nonzero()[:, 0]
    lowest = rows.new_full((len(means),), len(local))
    return lowest.scatter_reduce(0, voxels[rows], rows, "amin")


def _mean_directions(normals: Tensor, voxels: Tensor, count: int) -> Tensor:
    """(K, 3) the leading eigenvectors of the sums of ``n n^T``, zero where all normals are."""
    wide = normals.double()
    products = torch.cat([wide.square(), wide * wide.roll(-1, 1)], dim=1)  # xx, yy, zz, xy, yz, zx
    tensors = _sums(products, voxels, count).mT
    # The leading eigenvector of S is the least one of trace(S) I - S.
    opposite = torch.cat([tensors[:3].sum(0) - tensors[:3], -tensors[3:]])
    directions = torch.cat([_principal(part)[1] for part in opposite.split(_AT_ONCE, dim=1)])
    agree = (directions * _sums(wide, voxels, count)).sum(-1, keepdim=True) >= 0
    return directions.where(agree, -directions).to(normals.dtype)


def _refuse(points: Tensor, size: float, normals: Tensor | None) -> None:
    if not isinstance(points, Tensor) or not points.is_floating_point():
        got = points.dtype if isinstance(points, Tensor) else type(points).__name__
        raise ValueError(f"points must be a floating point tensor, got {got}")
    if points.ndim != 2 or points.shape[1] != 3:
        raise ValueError(f"points must have shape (N, 3), got {tuple(points.shape)}")
    if not 0 < size < math.inf:
        raise ValueError(f"size must be positive and finite, got {size!r}")
    if normals is not None and normals.shape != points.shape:
        raise ValueError(f"normals must have the shape of points, {tuple(points.shape)}, got {tuple(normals.shape)}")
    for name, array in (("points", points), ("normals", normals)):
        if array is not None and not array.isfinite().all():
            raise ValueError(f"{name} must be finite, got NaN or infinity")
