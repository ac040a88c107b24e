"""The nearest partners of a moving cloud, looked for again only where they may have changed."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from p2plane.geometry.neighbors import NeighborIndex

REACH = 1.25  # of the maximum distance: what lies between is known not to come into range at once


class Pairing:
    """The nearest target point of each point of a cloud that moves from round to round.

    A search finds the nearest point and, from the second nearest, how far all others are at least. That bound shrinks
    by no more than the point has moved since. So as long as the partner is nearer than what is left of the bound it is
    the nearest still, and the tree is asked again only about the other points. The answer is exact.
    """

    def __init__(self, target: Tensor, max_distance: float = math.inf) -> None:
        """The target (M, 3), not empty, and how far partners may be apart."""
        self._target = target
        self._index = NeighborIndex(target)
        self._max_distance = max_distance
        self._asked_at: Tensor | None = None  # (N, 3) where each point was when it was last looked for
        self._partners = torch.empty(0, dtype=torch.int64)  # (N,)
        self._others = torch.empty(0)  # (N,) at least so far were all other target points from there

    def at(self, moved: Tensor) -> tuple[Tensor, Tensor]:
        """(N,) rows of the nearest target points of the moved cloud (N, 3), and their distances (N,).

        A distance above the maximum means no more than that there is no point within it.
        """
        if self._asked_at is None:
            self._asked_at = moved.clone()
            distances, self._partners, self._others = self._search(moved)
            return self._partners, distances
        distances = _lengths(moved - self._target[self._partners])
        left = self._others - _lengths(moved - self._asked_at)
        stale = (distances.clamp_max(self._max_distance) >= left).nonzero()[:, 0]
        if len(stale):
            points = moved[stale]
            distances[stale], self._partners[stale], self._others[stale] = self._search(points)
            self._asked_at[stale] = points
        return self._partners, distances

    def _search(self, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Distance and row of the nearest target point, and the bound for all others, (N,) each."""
        reach = REACH * self._max_distance
        if math.isinf(reach):
            found = self._index.knn(points, min(2, len(self._target)))
        else:
            found = self._index.within(points, reach, 2)
        distances = found.distances[:, 0]
        others = found.distances[:, 1] if found.distances.shape[1] > 1 else torch.full_like(distances, math.inf)
        return distances.contiguous(), found.indices[:, 0].contiguous(), others.clamp_max(reach)


def _lengths(vectors: Tensor) -> Tensor:
    return torch.linalg.vector_norm(vectors, dim=-1)
