"""Features of neighbourhoods from invariants alone, of the tokens that stand for a cloud."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from p2plane.geometry.neighbors import NeighborIndex, gather
from p2plane.geometry.sampling import farthest_points
from p2plane.matching.keypoints import take
from p2plane.networks.invariants import EDGE_CHANNELS, edge_invariants


class Tokens(NamedTuple):
    """A few points of each cloud, and what is around them."""

    indices: Tensor  # (B, S) rows of the points
    mask: Tensor | None  # (B, S) bool
    points: Tensor  # (B, S, 3)
    normals: Tensor  # (B, S, 3)
    nearest: Tensor  # (B, N) the token nearest to each point


class Surroundings(NamedTuple):
    """Clouds, their tokens, and the invariants of all edges: everything about them that has no gradient."""

    tokens: Tokens
    point_edges: Tensor  # (B, N, k, 5), the distance first; with coordinates 11
    token_edges: Tensor  # (B, S, K, 5) likewise
    token_neighbors: Tensor  # (B, S, K) rows of the points


def surroundings(
    points: Tensor,
    normals: Tensor,
    mask: Tensor | None,
    *,
    tokens: int,
    neighbors: int,
    token_neighbors: int,
    coordinates: bool = False,
) -> Surroundings:
    """The neighbourhoods of all points, and the wider ones of tokens that are spread evenly.

    Args:
        points: (B, N, 3) in units of the cloud's radius.
        normals: (B, N, 3).
        mask: (B, N) bool.
        tokens: how many, at most.
        neighbors: of a point; all where a cloud has fewer.
        token_neighbors: of a token.
        coordinates: whether edges have offsets and centres after the invariants.

    Gradient: none.
    """
    with torch.no_grad():  # gradient stops here: what is near is discrete, and positions are given
        taken = farthest_points(points, tokens, mask)
        token_points, token_normals = (take(each, taken.indices) for each in (points, normals))
        apart = torch.cdist(points, token_points)
        if taken.mask is not None:
            apart = apart.masked_fill(~taken.mask[:, None], float("inf"))
        index = NeighborIndex(points, mask=mask)
        size = points.shape[1]
        around = index.knn(points, min(neighbors, size), mask=mask).indices
        far = index.knn(token_points, min(token_neighbors, size), mask=taken.mask).indices
        return Surroundings(
            Tokens(taken.indices, taken.mask, token_points, token_normals, apart.argmin(-1)),
            _edges(points, normals, around, points, normals, coordinates),
            _edges(points, normals, far, token_points, token_normals, coordinates),
            far,
        )


def _edges(
    points: Tensor, normals: Tensor, indices: Tensor, centers: Tensor, center_normals: Tensor, coordinates: bool
) -> Tensor:
    offsets = gather(points, indices) - centers[:, :, None]
    invariants = edge_invariants(offsets, center_normals[:, :, None], gather(normals, indices))
    if not coordinates:
        return invariants
    return torch.cat([invariants, offsets, centers[:, :, None].expand_as(offsets)], dim=-1)


class LocalFeatures(nn.Module):
    """(B, S, C) features of tokens: maxima over the neighbours of every point, then over the neighbours of tokens."""

    def __init__(self, point_width: int, token_width: int, coordinates: bool = False) -> None:
        super().__init__()
        hidden, channels = point_width // 2, EDGE_CHANNELS + (6 if coordinates else 0)
        self.edges = nn.Sequential(nn.Linear(channels, hidden), nn.ReLU(), nn.Linear(hidden, point_width))
        self.points = nn.Sequential(nn.LayerNorm(point_width), nn.ReLU(), nn.Linear(point_width, point_width))
        self.of_neighbor = nn.Linear(point_width, point_width)
        self.of_edge = nn.Linear(channels, point_width)
        self.of_both = nn.Linear(point_width, token_width)
        self.tokens = nn.Sequential(nn.LayerNorm(token_width), nn.ReLU(), nn.Linear(token_width, token_width))

    def forward(self, around: Surroundings) -> Tensor:
        # A neighbour that stands there twice, for want of others, changes no maximum.
        of_points = self.points(_largest(self.edges(around.point_edges)))
        seen = gather(self.of_neighbor(of_points), around.token_neighbors)  # (B, S, K, L)
        seen = torch.relu(seen + self.of_edge(around.token_edges))
        result: Tensor = self.tokens(self.of_both(_largest(seen)))
        return result


def _largest(values: Tensor) -> Tensor:
    """(B, N, C) maxima over neighbours of (B, N, k, C); unlike `amax`, one of equal ones gets the gradient."""
    return values.max(2).values
