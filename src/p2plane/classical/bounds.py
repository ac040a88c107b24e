"""How good a set of poses can be at best: bounds on the distances between two clouds, for Go-ICP.

Lengths are in normalised units: both clouds lie in the unit ball. The "model" is fixed, the "data" are moved.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

_CHUNK = 2**16  # distances that are looked up at once: so many stay in the cache
_FIRST_LEVEL = 2  # coarser translation cubes reach all over the clouds, so that their bounds say nothing
_LAST_LEVEL = 20
_FINENESS = 0.25  # translation cubes smaller than this part of what rotations leave open are not worth their while
_CORNERS = np.stack(np.meshgrid(*3 * [[-0.5, 0.5]], indexing="ij"), axis=-1).reshape(8, 3)


def children(centers: np.ndarray, half_side: float | np.ndarray) -> np.ndarray:
    """(P, 8, 3) centres of the eight parts of cubes with centres (P, 3) and half sides, one or (P,)."""
    return centers[:, None] + np.reshape(half_side, (-1, 1, 1)) * _CORNERS


class DistanceField:
    """Distances to the nearest model point, looked up in a grid about the origin.

    They are exact at the nodes, but for the rare node whose nearest point shares a cell with others. A look-up takes
    the nearest node, and so is wrong by at most half the diagonal of a cell. Places outside the grid count as its rim.

    Args:
        model: (M, 3).
        reach: half the side of the grid, at least.
        cell: distance of two nodes.
    """

    def __init__(self, model: np.ndarray, reach: float, cell: float) -> None:
        self.cell, self._half = cell, math.ceil(reach / cell)
        self._nodes = 2 * self._half + 1
        self._strides = np.array([self._nodes**2, self._nodes, 1], dtype=np.int32)
        self.values = self._distances(model)

    def rows(self, points: np.ndarray) -> np.ndarray:
        """(...) int32 rows of `values` for points (..., 3)."""
        nodes = np.rint(points / self.cell).clip(-self._half, self._half).astype(np.int32)
        return nodes @ self._strides + self._half * self._strides.sum(dtype=np.int32)

    def steps(self, translations: np.ndarray) -> np.ndarray:
        """(...) int32 what translations (..., 3), rounded to cells, add to the rows of points that stay in the grid."""
        return np.rint(translations / self.cell).astype(np.int32) @ self._strides

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """(...) distances of points (..., 3)."""
        return self.values[self.rows(points)]

    def _distances(self, model: np.ndarray) -> np.ndarray:
        from scipy.ndimage import distance_transform_edt  # type: ignore[import-untyped]

        occupant = np.full(self._nodes**3, -1, dtype=np.int32)
        occupant[self.rows(model)] = np.arange(len(model), dtype=np.int32)
        grid = occupant.reshape(3 * [self._nodes])
        nearest = distance_transform_edt(grid < 0, return_distances=False, return_indices=True)
        axis = (np.arange(self._nodes) - self._half) * self.cell
        plane = np.stack(np.meshgrid([0.0], axis, axis, indexing="ij"), axis=-1)[0]  # (nodes, nodes, 3)
        values = np.empty(grid.shape, dtype=np.float32)
        for i, x in enumerate(axis):  # one plane at a time, to be sparing with memory
            points = model[grid[tuple(nearest[:, i])]]
            values[i] = np.linalg.norm(points - plane - [x, 0, 0], axis=-1)
        return values.reshape(-1)


class RotationBounds(NamedTuple):
    """What the search over translations found for each of R sets of rotations."""

    lower: np.ndarray  # (R,) no pose of the set has a smaller error than this
    error: np.ndarray  # (R,) smallest error that was met at the middle rotation of the set
    translation: np.ndarray  # (R, 3) where it was met


class TranslationSearch:
    """Bounds on the error over a cube of translations, for many sets of rotations at once.

    The error is the sum of squared distances of the data to the model, of the `kept` smallest ones only.

    Args:
        field: of the model; must reach as far as the data can be moved.
        half_side: of the cube about the origin.
        kept: how many data points count.
    """

    def __init__(self, field: DistanceField, half_side: float, kept: int) -> None:
        self.field, self.half_side, self.kept = field, half_side, kept
        self.evaluations = 0
        centers = np.zeros((1, 3))
        for level in range(_FIRST_LEVEL):
            centers = children(centers, half_side / 2**level).reshape(-1, 3)
        self._first = centers  # (64, 3)

    def __call__(self, rotated: np.ndarray, slack: np.ndarray, limit: float) -> RotationBounds:
        """Search all sets side by side, the cubes from coarse to fine.

        Args:
            rotated: (R, N, 3) data at the middle rotation of each set.
            slack: (R, N) how far each point can get from there by the other rotations of the set.
            limit: the search of a set ends as soon as it is known whether some pose of it may be below this error.
        """
        sets = len(rotated)
        rows, slack = self.field.rows(rotated), slack.astype(np.float32)
        reach = slack.max(axis=1)  # (R,)
        upper, lower = np.full(sets, np.inf), np.full(sets, np.inf)
        error, translation = np.full(sets, np.inf), np.zeros((sets, 3))
        owner = np.repeat(np.arange(sets), len(self._first))  # (P,) the set of each cube, ascending
        centers = np.tile(self._first, (sets, 1))  # (P, 3)
        for level in range(_FIRST_LEVEL, _LAST_LEVEL + 1):
            half_side = self.half_side / 2**level
            errors, uppers, lowers = self._evaluate(rows, slack, owner, centers, math.sqrt(3) * half_side)
            present, starts = np.unique(owner, return_index=True)
            _improve(error, translation, present, starts, errors, centers)
            upper[present] = np.minimum(upper[present], np.minimum.reduceat(uppers, starts))
            undecided = (upper >= limit) & (_FINENESS * reach < math.sqrt(3) * half_side)  # (R,)
            is_open = (lowers < limit) & undecided[owner] & (level < _LAST_LEVEL)
            np.minimum.at(lower, owner[~is_open], lowers[~is_open])
            if not is_open.any():
                break
            owner = np.repeat(owner[is_open], 8)
            centers = children(centers[is_open], half_side).reshape(-1, 3)
        return RotationBounds(lower, error, translation)

    def _evaluate(
        self, rows: np.ndarray, slack: np.ndarray, owner: np.ndarray, centers: np.ndarray, radius: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(P,) errors at the centres, and upper and lower bounds of the least error within each cube and set."""
        steps = self.field.steps(centers)
        sums = np.empty((3, len(owner)))
        chunk = max(1, _CHUNK // rows.shape[1])
        for start in range(0, len(owner), chunk):
            part = slice(start, start + chunk)
            distances = self.field.values.take(rows[owner[part]] + steps[part, None])
            sums[0, part] = self._sum(distances)
            distances -= slack[owner[part]]
            least = self._smallest(np.maximum(distances, 0, out=distances))
            sums[1, part] = np.einsum("pn,pn->p", least, least)
            least -= np.float32(radius)
            np.maximum(least, 0, out=least)
            sums[2, part] = np.einsum("pn,pn->p", least, least)
        self.evaluations += len(owner)
        return sums[0], sums[1], sums[2]

    def _sum(self, distances: np.ndarray) -> np.ndarray:
        least = self._smallest(distances)
        return np.einsum("pn,pn->p", least, least)

    def _smallest(self, distances: np.ndarray) -> np.ndarray:
        """(P, kept) of distances (P, N), in any order."""
        if self.kept == distances.shape[1]:
            return distances
        return np.partition(distances, self.kept - 1, axis=1)[:, : self.kept]


def _improve(
    error: np.ndarray,
    translation: np.ndarray,
    present: np.ndarray,
    starts: np.ndarray,
    errors: np.ndarray,
    centers: np.ndarray,
) -> None:
    """Keep the least error of each set, and where it is; in place."""
    for which, first, last in zip(present, starts, [*starts[1:], len(errors)], strict=True):
        at = first + int(errors[first:last].argmin())
        if errors[at] < error[which]:
            error[which], translation[which] = errors[at], centers[at]
