"""The two engines behind `neighbors`: KD-trees, and blocks of distances."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from scipy.spatial import cKDTree  # type: ignore[import-untyped]


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


class Tree(NamedTuple):
    """A KD-tree of the present points of one cloud."""

    tree: cKDTree
    rows: np.ndarray  # in the cloud, of the points of the tree; -1 at the end, where the tree points to for no point


def plant(clouds: Tensor, present: Tensor | None) -> list[Tree]:
    """A tree for each cloud (B, M, D), of the points that are present (B, M)."""
    trees = []
    for i, cloud in enumerate(clouds.double().numpy(force=True)):
        rows = np.arange(len(cloud)) if present is None else present[i].numpy(force=True).nonzero()[0]
        trees.append(Tree(tree_of(cloud[rows]), np.append(rows, -1)))
    return trees


def tree_of(points: np.ndarray) -> cKDTree:
    """A KD-tree of points (M, D) in float64, which it keeps if their rows lie one after the other."""
    from scipy.spatial import cKDTree

    # Splitting boxes in the middle instead of at the median is twice as fast to build, and no slower to search.
    return cKDTree(points, leafsize=16, balanced_tree=False)


def by_trees(trees: list[Tree], queries: Tensor, k: int, bound: float, along_leaves: bool) -> tuple[Tensor, Tensor]:
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


def by_blocks(queries: Tensor, clouds: Tensor, present: Tensor | None, k: int) -> tuple[Tensor, Tensor]:
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
        distances[b, n] = distances_to(queries[b, n], clouds[b], indices[b, n])
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
    if queries.shape[-1] <= 4 and torch.compiler.is_compiling():  # ONNX has no cdist
        return (queries[:, :, None] - clouds[:, None]).square().sum(-1)
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


def distances_to(query: Tensor, points: Tensor, indices: Tensor) -> Tensor:
    """(..., N, k) from the differences themselves, which lose nothing far from the origin."""
    differences = query[..., None, :] - gather(points, indices)
    wide = torch.promote_types(differences.dtype, torch.float32)
    return torch.linalg.vector_norm(differences, dim=-1, dtype=wide).to(differences.dtype)
