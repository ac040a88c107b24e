"""The nearest partners of a moving cloud, looked for again only where they may have changed.

In NumPy, as the trees are: at a thousand points a round takes less time than PyTorch needs to start its operations.
Clouds are channel first here, (3, N) in float64.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from p2plane.geometry.engines import tree_of

REACH = 1.25  # of the maximum distance: what lies between is known not to come into range at once
SURELY = 1 - 1e-12  # of a bound, so that rounding in many rounds does not lift it above the truth
FEW = 4000  # searches that are done before other threads have started
CELLS = 32  # to a side of the grid along which searches are ordered


class Target:
    """The cloud in which partners are looked for."""

    def __init__(self, points: np.ndarray) -> None:
        """Points (3, M), at least one."""
        self.points = points
        self._tree = tree_of(points.T)

    def nearest_two(self, queries: np.ndarray, reach: float) -> tuple[np.ndarray, np.ndarray]:
        """(N, 2) distances and rows of the nearest points within reach of (3, N); infinite, and 0, where none is."""
        workers = torch.get_num_threads() if queries.shape[1] > FEW else 1
        distances, rows = self._tree.query(queries.T, 2, distance_upper_bound=reach, workers=workers)
        rows[rows == self.points.shape[1]] = 0
        return distances, rows


class Pairing:
    """The nearest target point of each point of a cloud that moves from round to round.

    A search finds the nearest point and, from the second nearest, how far all others are at least. That bound shrinks
    by no more than the point moves from round to round. So as long as the partner is nearer than what is left of the
    bound it is the nearest still, and the tree is asked again only about the other points. The answer is exact.
    """

    def __init__(self, target: Target, max_distance: float = math.inf) -> None:
        """The target, and how far partners may be apart."""
        self._target, self._max_distance = target, max_distance
        self._reach = REACH * max_distance
        self._moved = np.empty((3, 0))  # (3, N) where the cloud was last
        self._others = np.empty(0)  # (N,) at least so far are all other target points from there
        self.partners = np.empty(0, dtype=np.int64)  # (N,) rows of the target
        self.points = np.empty((3, 0))  # (3, N) those rows
        self.distances = np.empty(0)  # (N,) above the maximum it only says that there is no point within it

    def follow(self, moved: np.ndarray) -> None:
        """Find the partners of the cloud where it is now, (3, N)."""
        if moved.shape != self._moved.shape:
            self._start(moved)
            return
        self._others -= lengths(moved - self._moved)
        self._moved = moved
        self.distances = lengths(moved - self.points)
        stale = (np.minimum(self.distances, self._max_distance) >= self._others).nonzero()[0]
        if len(stale) == 0:
            return
        distances, rows = self._target.nearest_two(moved.take(stale, axis=1), self._reach)
        self.partners = self.partners.copy()  # a round keeps the ones it was given
        self.distances[stale], self.partners[stale] = distances[:, 0], rows[:, 0]
        self._others[stale] = SURELY * np.minimum(distances[:, 1], self._reach)
        self.points = self._target.points.take(self.partners, axis=1)

    def _start(self, moved: np.ndarray) -> None:
        distances, rows = self._target.nearest_two(moved, self._reach)
        self.distances, self.partners = distances[:, 0], rows[:, 0].copy()
        self.points = self._target.points.take(self.partners, axis=1)
        self._others, self._moved = SURELY * np.minimum(distances[:, 1], self._reach), moved


def lengths(vectors: np.ndarray) -> np.ndarray:
    """(N,) of vectors (3, N)."""
    return np.sqrt(np.einsum("an,an->n", vectors, vectors))


def along_a_grid(points: np.ndarray) -> np.ndarray:
    """(N,) an order in which neighbours come together, so that searches find their part of the tree in the cache."""
    low = points.min(1, keepdims=True)
    edge = float((points - low).max()) / CELLS or 1.0
    x, y, z = ((points - low) / edge).astype(np.int64)
    keys = ((x * (CELLS + 1) + y) * (CELLS + 1) + z) << 40
    return np.sort(keys | np.arange(points.shape[1])) & ((1 << 40) - 1)
