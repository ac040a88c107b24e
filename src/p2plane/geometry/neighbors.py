"""Exact neighbours in any dimension: the k nearest, or those within a radius.

Two engines give the same answer. Blocks of distances work on any device and in feature space; scipy's KD-tree is much
faster for large clouds on the CPU. There ``engine="auto"`` takes the tree from ``2^(6 + D)`` points of dimension D on,
512 in space, which is about where it was measured to overtake the blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from scipy.spatial import cKDTree  # type: ignore[import-untyped]

ENGINES = ("auto", "blocks", "tree")


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


def gather(values: Tensor, indices: Tensor) -> Tensor:
    """What belongs to the neighbours.

    Args:
        values: (..., M, C), one row for each point, the batch shape of the indices or none.
        indices: (..., N, k), as from `knn`.

    Returns:
        (..., N, k, C).

    Gradient: values.
    """
    count = values.shape[-2]
    if values.ndim > 2 and values.shape[:-2].numel() > 1:
        clouds = torch.arange(values.shape[:-2].numel(), device=values.device)
        indices = indices + count * clouds.view(*values.shape[:-2], 1, 1)
    rows = values.reshape(-1, values.shape[-1]).index_select(0, indices.reshape(-1))
    return rows.view(*indices.shape, values.shape[-1])


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
        self._trees: list[_Tree] = []

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
            self._trees = self._trees or _plant(clouds, present)
            # A little more than the radius: distances are compared once they are rounded to the dtype of the points.
            bound = radius * (1 + 4 * torch.finfo(clouds.dtype).eps)
            distances, indices = _by_trees(self._trees, queries, k, bound, along_leaves)
        else:
            distances, indices = _by_blocks(queries, clouds, present, k)
        distances, indices = (each.to(query.device).view(*query.shape[:-1], k) for each in (distances, indices))
        if torch.is_grad_enabled() and (query.requires_grad or self.points.requires_grad):
            distances = _distances(query, self.points, indices.clamp(min=0))
        distances = distances.to(query.dtype)
        if self.mask is None and mask is None and radius == float("inf"):
            return Neighbors(distances, indices)  # nothing can be missing
        return _filled(distances, indices, mask, radius)


class _Tree(NamedTuple):
    """A KD-tree of the present points of one cloud."""

    tree: cKDTree
    rows: np.ndarray  # in the cloud, of the points of the tree; -1 at the end, where the tree points to for no point


def _plant(clouds: Tensor, present: Tensor | None) -> list[_Tree]:
    from scipy.spatial import cKDTree

    trees = []
    for i, cloud in enumerate(clouds.double().numpy(force=True)):
        rows = np.arange(len(cloud)) if present is None else present[i].numpy(force=True).nonzero()[0]
        # Splitting boxes in the middle instead of at the median is twice as fast to build, and no slower to search.
        trees.append(_Tree(cKDTree(cloud[rows], leafsize=16, balanced_tree=False), np.append(rows, -1)))
    return trees


def _by_trees(trees: list[_Tree], queries: Tensor, k: int, bound: float, along_leaves: bool) -> tuple[Tensor, Tensor]:
    """(B, N, k) distances in float64 and indices, -1 where there are no more."""
    distances = np.empty((*queries.shape[:2], k))
    indices = np.empty(distances.shape, dtype=np.int64)
    for i, (tree, rows) in enumerate(trees):
        # Queries in the order of the leaves find their part of the tree in the cache.
        order = tree.indices if along_leaves else slice(None)
        query = queries[i].double().numpy(force=True)[order]
        found = tree.query(query, k, distance_upper_bound=bound, workers=torch.get_num_threads())
        distances[i, order] = found[0].reshape(-1, k)
        indices[i, order] = rows[found[1].reshape(-1, k)]
    return torch.from_numpy(distances), torch.from_numpy(indices)


def _by_blocks(queries: Tensor, clouds: Tensor, present: Tensor | None, k: int) -> tuple[Tensor, Tensor]:
    """(B, N, k) distances and indices, -1 where there are no more; only a block of all distances exists at a time."""
    wide = torch.float32 if queries.device.type == "mps" else torch.float64
    count = clouds.shape[1] if present is None else present.sum(-1).clamp(min=1)[:, None, None]
    center = clouds.sum(1, keepdim=True, dtype=wide) / count  # absent points are zero
    distances = queries.new_empty(*queries.shape[:2], k)
    indices = torch.empty_like(distances, dtype=torch.int64)
    for b, n in _blocks(queries.shape[0], queries.shape[1], clouds.shape[1], queries.device):
        block = _all_distances(queries[b, n].to(wide), clouds[b].to(wide), center[b])
        if present is not None:
            block.masked_fill_(~present[b, None], float("inf"))
        indices[b, n] = _smallest(block, k)
        distances[b, n] = _distances(queries[b, n], clouds[b], indices[b, n])
    if present is not None:
        indices.masked_fill_(~gather(present[..., None], indices).squeeze(-1), -1)
    return distances, indices


def _blocks(batch: int, queries: int, points: int, device: torch.device) -> Iterator[tuple[slice, slice]]:
    """Slices of clouds and of queries, so that a block fits into the cache of a CPU, and keeps a GPU busy."""
    room = 2**20 if device.type == "cpu" else 2**25
    clouds = max(1, room // max(1, queries * points))
    rows = max(1, room // (clouds * points))
    for first in range(0, batch, clouds):
        for start in range(0, queries, rows):
            yield slice(first, first + clouds), slice(start, start + rows)


def _all_distances(queries: Tensor, clouds: Tensor, center: Tensor) -> Tensor:
    """(B, N, M) distances, or their squares, of float64 points."""
    if queries.shape[-1] <= 4:
        return torch.cdist(queries, clouds, compute_mode="donot_use_mm_for_euclid_dist")
    # In many dimensions |q - p|^2 = (q, |q|^2, 1) . (-2 p, 1, |p|^2); digits cancel, but few of them near the center.
    queries, clouds = queries - center, clouds - center
    left = torch.cat([queries, _squares(queries), torch.ones_like(queries[..., :1])], dim=-1)
    right = torch.cat([-2 * clouds, torch.ones_like(clouds[..., :1]), _squares(clouds)], dim=-1)
    return left @ right.mT


def _squares(points: Tensor) -> Tensor:
    return points.square().sum(-1, keepdim=True)


def _smallest(distances: Tensor, k: int) -> Tensor:
    """(..., k) indices of the smallest entries of (..., M), in ascending order; the tensor is used up."""
    if distances.device.type != "cpu" or torch.compiler.is_compiling():
        return distances.topk(k, dim=-1, largest=False).indices
    # Positive floats are ordered like their bits. With the index in the lowest ones, NumPy's partition of integers
    # needs a third of the time of topk, and ties go to the lower index; 52 bits leave the distances more than enough.
    values = distances.numpy()
    lowest = (1 << (values.shape[-1] - 1).bit_length()) - 1
    keys = np.maximum(values, 0, out=values).view(np.int64)
    keys &= ~lowest
    keys |= np.arange(keys.shape[-1])
    keys.partition(k - 1, axis=-1)
    return torch.from_numpy(np.sort(keys[..., :k], axis=-1) & lowest)


def _distances(query: Tensor, points: Tensor, indices: Tensor) -> Tensor:
    """(..., N, k) from the differences themselves, which lose nothing far from the origin."""
    differences = query[..., None, :] - gather(points, indices)
    wide = torch.promote_types(differences.dtype, torch.float32)
    return torch.linalg.vector_norm(differences, dim=-1, dtype=wide).to(differences.dtype)


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
    if points.device.type == "cpu" and not torch.compiler.is_compiling() and not points.isfinite().all():
        place = (~points.isfinite()).nonzero()[0, :-1].tolist()
        raise ValueError(
            f"{name} must be finite where a point is present, got {points[tuple(place)].tolist()} at {tuple(place)}; "
            f"leave such points out with {mask_name}"
        )
    return points, mask


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
