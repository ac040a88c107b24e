"""Exact neighbours in any dimension: the k nearest, or those within a radius.

Two engines give the same answer. Blocks of distances work on any device and in feature space; scipy's KD-tree is much
faster for large clouds on the CPU. There ``engine="auto"`` takes the tree from ``2^(6 + D)`` points of dimension D on,
512 in space, which is about where it was measured to overtake the blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from p2plane.geometry.engines import Tree, by_blocks, by_trees, distances_to, gather, plant

__all__ = ["NeighborIndex", "Neighbors", "gather", "knn", "radius_search"]

ENGINES = ("auto", "blocks", "tree")

LARGEST = 1e150
"""Coordinates of which squares fit in float64."""


class Neighbors(NamedTuple):
    """Neighbours of each query, nearest first; equally near ones in any order.

    Where fewer were found than there is room for, the nearest one is repeated (row 0 where there is none at all) with
    an infinite distance, so that every index can be gathered with.
    """

    distances: Tensor  # (..., N, k)
    indices: Tensor  # (..., N, k) int64, rows of the points

    @property
    def found(self) -> Tensor:
        """(..., N, k) bool, false where the nearest one is only repeated."""
        return self.distances < float("inf")

    @property
    def counts(self) -> Tensor:
        """(..., N) how many were found."""
        return self.found.sum(-1)


def knn(
    query: Tensor,
    points: Tensor,
    k: int,
    *,
    mask: Tensor | None = None,
    query_mask: Tensor | None = None,
    engine: str = "auto",
) -> Neighbors:
    """The k points nearest to each query; a query that is one of the points finds itself first.

    Args:
        query: (..., N, D).
        points: (..., M, D), the batch shape of the queries or none.
        k: at most M.
        mask: (..., M) bool, true where a point is present; absent points are nobody's neighbours and may hold NaN.
        query_mask: (..., N) bool; absent queries find nothing.
        engine: "auto", "blocks" or "tree".

    Returns:
        `Neighbors`, all found unless something is absent.

    Gradient: the distances to query and points; zero where a distance is zero. Indices are discrete, so a caller who
    needs nothing else saves time with ``query.detach()``.
    """
    return NeighborIndex(points, mask=mask, engine=engine).knn(query, k, mask=query_mask)


def radius_search(
    query: Tensor,
    points: Tensor,
    radius: float,
    max_neighbors: int,
    *,
    mask: Tensor | None = None,
    query_mask: Tensor | None = None,
    engine: str = "auto",
) -> Neighbors:
    """The nearest points whose distance to each query is at most the radius.

    Args:
        radius: positive.
        max_neighbors: how many to keep, the nearest ones; may be more than there are points.

    The other arguments, the result and the gradient are those of `knn`.
    """
    index = NeighborIndex(points, mask=mask, engine=engine)
    return index.within(query, radius, max_neighbors, mask=query_mask)


class NeighborIndex:
    """Points prepared for many searches: KD-trees are built once, by the first search that uses them."""

    def __init__(self, points: Tensor, *, mask: Tensor | None = None, engine: str = "auto") -> None:
        """Arguments as in `knn`."""
        if engine not in ENGINES:
            raise ValueError(f"engine must be one of {ENGINES}, got {engine!r}")
        self.points, self.mask = _checked("points", points, "mask", mask)
        count, dimension = points.shape[-2:]
        if count == 0:
            raise ValueError(f"points must hold at least one point, got shape {tuple(points.shape)}")
        on_cpu = points.device.type == "cpu" and not torch.compiler.is_compiling()
        self._uses_trees = engine == "tree" or (engine == "auto" and on_cpu and count >= 2 ** (6 + dimension))
        self._trees: list[Tree] = []

    def knn(self, query: Tensor, k: int, *, mask: Tensor | None = None) -> Neighbors:
        """As `knn`, with the mask of the queries."""
        count = self.points.shape[-2]
        if not isinstance(k, int) or not 1 <= k <= count:
            raise ValueError(f"k must be an integer from 1 to the number of points, {count}, got {k!r}")
        return self._search(query, mask, k, float("inf"))

    def within(self, query: Tensor, radius: float, max_neighbors: int, *, mask: Tensor | None = None) -> Neighbors:
        """As `radius_search`, with the mask of the queries."""
        if not 0 < radius < float("inf"):
            raise ValueError(f"radius must be positive and finite, got {radius!r}")
        if not isinstance(max_neighbors, int) or max_neighbors < 1:
            raise ValueError(f"max_neighbors must be a positive integer, got {max_neighbors!r}")
        distances, indices = self._search(query, mask, min(max_neighbors, self.points.shape[-2]), radius)
        missing = (*indices.shape[:-1], max_neighbors - indices.shape[-1])
        distances = torch.cat([distances, distances.new_full(missing, float("inf"))], dim=-1)
        return Neighbors(distances, torch.cat([indices, indices[..., :1].expand(missing)], dim=-1))

    def _search(self, query: Tensor, mask: Tensor | None, k: int, radius: float) -> Neighbors:
        along_leaves = query is self.points and self.mask is None
        query, mask = _checked("query", query, "query_mask", mask)
        _refuse_other(query, self.points)
        batch = self.points.shape[:-2].numel()  # 1 for one cloud, whose queries then may have any batch shape
        rows = query.shape[:-1].numel() // max(1, batch)
        # gradient stops here: indices are discrete
        clouds = self.points.detach().reshape(batch, *self.points.shape[-2:])  # (B, M, D)
        queries = query.detach().reshape(batch, rows, query.shape[-1])  # (B, N, D)
        present = None if self.mask is None else self.mask.reshape(clouds.shape[:2])
        if self._uses_trees:
            self._trees = self._trees or plant(clouds, present)
            # A little more than the radius: distances are compared once they are rounded to the dtype of the points.
            bound = radius * (1 + 4 * torch.finfo(clouds.dtype).eps)
            distances, indices = by_trees(self._trees, queries, k, bound, along_leaves)
        else:
            distances, indices = by_blocks(queries, clouds, present, k)
        distances, indices = (each.to(query.device).view(*query.shape[:-1], k) for each in (distances, indices))
        if torch.is_grad_enabled() and (query.requires_grad or self.points.requires_grad):
            distances = distances_to(query, self.points, indices.clamp(min=0))
        distances = distances.to(query.dtype)
        if self.mask is None and mask is None and radius == float("inf"):
            return Neighbors(distances, indices)  # nothing can be missing
        return _filled(distances, indices, mask, radius)


def _filled(distances: Tensor, indices: Tensor, mask: Tensor | None, radius: float) -> Neighbors:
    """The result, where indices may be -1, queries absent and distances beyond the radius."""
    found = (indices >= 0) & (distances <= radius)
    if mask is not None:
        found = found & mask[..., None]
    nearest = indices[..., :1].where(found[..., :1], 0)
    return Neighbors(distances.where(found, float("inf")), indices.where(found, nearest))


def _checked(name: str, points: Tensor, mask_name: str, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Points that are finite, zero where absent."""
    if not isinstance(points, Tensor) or not points.is_floating_point():
        got = points.dtype if isinstance(points, Tensor) else type(points).__name__
        raise ValueError(f"{name} must be a floating point tensor, got {got}")
    if points.ndim < 2 or points.shape[-1] == 0:
        raise ValueError(f"{name} must have shape (..., N, D), got {tuple(points.shape)}")
    if mask is not None:
        if mask.dtype != torch.bool or mask.shape != points.shape[:-1]:
            raise ValueError(
                f"{mask_name} must be boolean with shape {tuple(points.shape[:-1])}, "
                f"got {mask.dtype} with shape {tuple(mask.shape)}"
            )
        points = points.where(mask[..., None], 0)
    if points.device.type != "cpu" or torch.compiler.is_compiling() or are_moderate(points):
        return points, mask
    if not points.isfinite().all():
        place = (~points.isfinite()).nonzero()[0, :-1].tolist()
        raise ValueError(
            f"{name} must be finite where a point is present, got {points[tuple(place)].tolist()} at {tuple(place)}; "
            f"leave such points out with {mask_name}"
        )
    refuse_too_large(name, points)
    return points, mask


def are_moderate(points: Tensor) -> bool:
    """Whether all coordinates are finite, and their squares fit in float64; in one pass."""
    if points.numel() == 0:
        return True
    low, high = points.detach().aminmax()
    return float(low) >= -LARGEST and float(high) <= LARGEST  # neither is true of NaN, which passes through aminmax


def refuse_too_large(name: str, points: Tensor) -> None:
    """Raise a ValueError where squared distances would not fit in float64, and nobody would be a neighbour."""
    if points.dtype == torch.float64 and points.numel() and points.abs().max() > LARGEST:
        raise ValueError(f"{name} must have coordinates below {LARGEST:g}, got {float(points.abs().max()):g}")


def _refuse_other(query: Tensor, points: Tensor) -> None:
    if query.shape[-1] != points.shape[-1]:
        raise ValueError(f"query must have the dimension of points, {points.shape[-1]}, got {query.shape[-1]}")
    if points.ndim > 2 and query.shape[:-2] != points.shape[:-2]:
        raise ValueError(
            f"query must have the batch shape of points, {tuple(points.shape[:-2])}, got {tuple(query.shape[:-2])}"
        )
    if (query.dtype, query.device) != (points.dtype, points.device):
        raise ValueError(
            f"query must have dtype and device of points, {points.dtype} on {points.device}, "
            f"got {query.dtype} on {query.device}"
        )
