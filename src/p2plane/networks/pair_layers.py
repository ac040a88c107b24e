"""A layer on pairs (neighbour, point) of features, without the pairs: all is a matter of points.

``W (neighbour, point) = W_n neighbour + W_p point``, and the moments of pairs are sums over points too.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from p2plane.geometry.neighbors import gather
from p2plane.networks.batch_norm import Moments
from p2plane.networks.graph import Graph, blocks_of
from p2plane.networks.maxima import largest


def pair_moments(features: Tensor, graph: Graph) -> Moments:
    """Moments of the pairs (neighbour, point) of features (P, D), over all edges.

    ``sum_ij x_j x_i^T = sum_i (sum_j x_j) x_i^T``: the pairs themselves are not needed.
    """
    sightings, neighbors = _degrees(graph, features)
    center = neighbors @ features.detach() / graph.edges  # far from the origin digits would cancel
    features = features - center
    sums: Tensor = _NeighborSum.apply(features, graph)
    mean = torch.cat([sightings @ features, neighbors @ features]) / graph.edges
    first, second = (features * sightings[:, None]).mT @ features, (features * neighbors[:, None]).mT @ features
    across = sums.mT @ features
    products = torch.cat([torch.cat([first, across], dim=1), torch.cat([across.mT, second], dim=1)]) / graph.edges
    return Moments(mean + center.repeat(2), products - mean[:, None] * mean, graph.edges)


def _degrees(graph: Graph, like: Tensor) -> tuple[Tensor, Tensor]:
    """(P,) whose neighbour a point is how many times, and how many neighbours it has."""
    points, k = graph.rows.shape
    seen = graph.rows.flatten() if graph.found is None else graph.rows[graph.found]
    neighbors = like.new_full((points,), k) if graph.found is None else graph.found.sum(1).to(like)
    return torch.bincount(seen, minlength=points).to(like), neighbors


class _NeighborSum(torch.autograd.Function):
    """(P, D) sums of the features of each point's neighbours."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, graph: Graph) -> Tensor:  # type: ignore[override]
        ctx.graph = graph
        if graph.found is None:
            return F.embedding_bag(graph.rows, features, mode="sum")
        return _bag_sums(features, graph.rows[graph.found], graph.found.sum(1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        rows, found, _ = ctx.graph
        points = torch.arange(len(rows), device=rows.device)[:, None].expand_as(rows)
        seen, seeing = (rows.flatten(), points.flatten()) if found is None else (rows[found], points[found])
        sightings = torch.bincount(seen, minlength=len(rows))
        return _bag_sums(gradient.contiguous(), seeing[seen.argsort()], sightings), None


def _bag_sums(features: Tensor, rows: Tensor, counts: Tensor) -> Tensor:
    """(P, D) sums of the listed rows of the features, the first so many for the first point and so on."""
    starts = F.pad(counts.cumsum(0)[:-1], (1, 0))
    return F.embedding_bag(rows, features, starts, mode="sum")


class NeighborMax(torch.autograd.Function):
    """(P, C) largest features among each point's neighbours."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, rows: Tensor) -> Tensor:  # type: ignore[override]
        maxima = torch.empty_like(features)
        slots = torch.empty_like(features, dtype=torch.uint8)
        for part in blocks_of(len(rows), rows.shape[1] * features.shape[1], features.device):
            maxima[part], slots[part] = largest(gather(features, rows[part]))
        ctx.save_for_backward(rows, slots)
        return maxima

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        rows, slots = ctx.saved_tensors
        return torch.zeros_like(gradient).scatter_add_(0, rows.gather(1, slots.long()), gradient), None
