"""Go-ICP: the best point-to-point alignment over all rotations and a cube of translations, by branch and bound.

Both clouds are centred and scaled into the unit ball. Cubes of rotation vectors and of translations are split again
and again; a cube is dropped once a lower bound shows that nothing in it can beat the best pose found so far by more
than the threshold. ICP turns promising middles of cubes into good poses early.

The search over translations that bounds rotation cubes (`bounds`) differs from the published one where that saves
time without loosening a bound: many cubes are bounded at once; the errors at their middles come from the same
look-ups instead of a second search; and it ends once it is known that a cube cannot be dropped.

Reference: Yang, Li, Campbell, Jia, "Go-ICP: A Globally Optimal Solution to 3D ICP Point-Set Registration", TPAMI 2016.
"""

from __future__ import annotations

import heapq
import math
import time
from dataclasses import dataclass

import numpy as np
import torch

from p2plane.classical.bounds import DistanceField, TranslationSearch, children
from p2plane.classical.pairwise import Found, PairwiseMethod
from p2plane.classical.scales import Surface

_LAST_LEVEL = 20
_LEAST_GAIN = 1e-4  # of the threshold: ICP stops when a round gains less


@dataclass(frozen=True)
class GoICPConfig:
    """Settings of `GoICP`; lengths in units of the radius of the larger cloud. The published ones are the defaults."""

    mse_threshold: float = 1e-3
    """The mean squared distance of the answer is at most so much above the least that is possible."""
    trim: float = 0.0
    """The share of source points that need no partner, those farthest away."""
    translation: float = 0.5
    """Half the side of the cube of translations between the centres of the clouds."""
    cells: int = 64
    """Of the grid of distances, along that cube. The published grid has 300 nodes along twice the target, which is
    much the same."""
    max_points: int = 1000
    """Of the source: more are thinned at random for the search, and come back for the last rounds of ICP."""
    time_limit: float | None = None
    """Seconds for each pair, after which the best pose so far is the answer, and `converged` is false."""
    split_at_once: int = 16
    """Rotation cubes."""
    polish_at_once: int = 2
    """Of their parts, the most promising ones from which ICP starts."""

    def __post_init__(self) -> None:
        for name in ("mse_threshold", "translation"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)!r}")
        for name in ("cells", "max_points", "split_at_once", "polish_at_once"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ValueError(f"{name} must be a positive integer, got {getattr(self, name)!r}")
        if not 0 <= self.trim < 1:
            raise ValueError(f"trim must be in [0, 1), got {self.trim!r}")
        if self.time_limit is not None and not self.time_limit > 0:
            raise ValueError(f"time_limit must be positive, got {self.time_limit!r}")


class GoICP(PairwiseMethod):
    """Go-ICP as a method, on the CPU.

    `converged` tells whether the pose is proven to be within the threshold of the best one, as far as the grid of
    distances can tell; `iterations` counts the rotation cubes that were bounded.
    """

    def __init__(self, config: GoICPConfig | None = None) -> None:
        self.config = config or GoICPConfig()
        self.trim = self.config.trim

    def find(self, source: Surface, target: Surface, generator: torch.Generator | None) -> Found:
        """The best pose of one pair."""
        points = [surface.points.numpy(force=True).astype(np.float64) for surface in (source, target)]
        source_center, target_center = (each.mean(0) for each in points)
        data, model = points[0] - source_center, points[1] - target_center
        scale = max(np.linalg.norm(each, axis=1).max() for each in (data, model)) or 1.0
        order = torch.randperm(len(data), generator=generator).numpy()
        search = _Search(data[order] / scale, model / scale, self.config)
        R, t = search.run()
        T = np.eye(4)
        T[:3, :3], T[:3, 3] = R, scale * t + target_center - R @ source_center
        return Found(torch.from_numpy(T), search.proven, search.cubes)


class _Search:
    """The search for one pair of normalised clouds, (N, 3) in random order and (M, 3)."""

    def __init__(self, data: np.ndarray, model: np.ndarray, config: GoICPConfig) -> None:
        from scipy.spatial import cKDTree  # type: ignore[import-untyped]

        self._deadline = time.monotonic() + (config.time_limit or math.inf)
        self._all, self._data, self._model, self._config = data, data[: config.max_points], model, config
        self._tree = cKDTree(model)
        cell = 2 * config.translation / config.cells
        self._field = DistanceField(model, 1 + config.translation + cell, cell)
        kept = max(1, math.floor(len(self._data) * (1 - config.trim) + 1e-9))
        self._threshold = config.mse_threshold * kept
        self._translations = TranslationSearch(self._field, config.translation, kept)
        self._best, self._pose = math.inf, (np.eye(3), np.zeros(3))
        self.proven, self.cubes = False, 0

    def run(self) -> tuple[np.ndarray, np.ndarray]:
        """(3, 3) rotation and (3,) translation with the least error; `proven` and `cubes` tell how it went."""
        self._polish(np.eye(3), np.zeros(3))
        queue: list[tuple[float, int, tuple[float, ...]]] = [(0.0, 0, (0.0, 0.0, 0.0))]  # lower bound, level, centre
        while queue and self._worthwhile(queue[0][0]):
            if time.monotonic() > self._deadline:
                break
            count = min(len(queue), self._config.split_at_once)
            self._split([heapq.heappop(queue) for _ in range(count)], queue)
        self.proven = not queue or not self._worthwhile(queue[0][0])
        return self._icp(self._all, *self._pose)

    def _worthwhile(self, lower: float) -> bool:
        return lower < self._best - self._threshold

    def _split(self, cubes: list[tuple[float, int, tuple[float, ...]]], queue: list) -> None:
        """Bound the parts of rotation cubes, polish the best of them, and queue those that may hold a better pose."""
        lowers, levels, centers = (np.array(column) for column in zip(*cubes, strict=True))
        half_sides = math.pi / 2**levels
        parts = children(centers, half_sides).reshape(-1, 3)
        levels, lowers, half_sides = np.repeat(levels + 1, 8), np.repeat(lowers, 8), np.repeat(half_sides / 2, 8)
        # Beyond pi, rotations repeat: cubes all outside that ball are not needed.
        inside = np.linalg.norm(parts, axis=1) - math.sqrt(3) * half_sides <= math.pi
        parts, levels, lowers, half_sides = (each[inside] for each in (parts, levels, lowers, half_sides))
        rotations = _rotations(parts)
        # A rotation of the cube is at most sqrt(3) half sides from the middle one; a point moves along a chord.
        angles = np.minimum(math.sqrt(3) * half_sides, math.pi)
        slack = 2 * np.sin(angles / 2)[:, None] * np.linalg.norm(self._data, axis=1)
        bounds = self._translations(self._data @ rotations.mT, slack, self._best - self._threshold)
        self.cubes += len(parts)
        for row in np.argsort(bounds.error)[: self._config.polish_at_once]:
            self._polish(rotations[row], bounds.translation[row])
        lowers = np.maximum(lowers, bounds.lower)
        for lower, level, part in zip(lowers.tolist(), levels.tolist(), parts.tolist(), strict=True):
            if self._worthwhile(lower) and level < _LAST_LEVEL:
                heapq.heappush(queue, (lower, level, tuple(part)))

    def _polish(self, R: np.ndarray, t: np.ndarray) -> None:
        """Try a pose, and what ICP makes of it."""
        for pose in ((R, t), self._icp(self._data, R, t)):
            squares = self._field(self._data @ pose[0].T + pose[1]).astype(np.float64) ** 2
            error = float(np.sort(squares)[: self._translations.kept].sum())
            if error < self._best:
                self._best, self._pose = error, pose

    def _icp(self, data: np.ndarray, R: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Trimmed point-to-point ICP of data (N, 3) from a pose."""
        kept = max(1, math.floor(len(data) * (1 - self._config.trim) + 1e-9))
        least_gain = _LEAST_GAIN * self._config.mse_threshold * kept
        before = math.inf
        while True:
            distances, rows = self._tree.query(data @ R.T + t)
            near = np.argpartition(distances, kept - 1)[:kept]
            error = float(np.square(distances[near]).sum())
            if not before - error >= least_gain:
                return R, t
            before = error
            R, t = _kabsch(data[near], self._model[rows[near]])


def _rotations(vectors: np.ndarray) -> np.ndarray:
    """(P, 3, 3) rotations about vectors (P, 3) by their lengths."""
    from scipy.spatial.transform import Rotation  # type: ignore[import-untyped]

    return Rotation.from_rotvec(vectors).as_matrix()


def _kabsch(data: np.ndarray, model: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The motion that brings data (N, 3) nearest to the model (N, 3), row by row."""
    data_center, model_center = data.mean(0), model.mean(0)
    U, _, Vt = np.linalg.svd((model - model_center).T @ (data - data_center))
    R = (U * [1, 1, np.sign(np.linalg.det(U @ Vt))]) @ Vt
    return R, model_center - R @ data_center
