"""What the page and the pictures draw: both clouds, thinned on purpose, about the target's middle and of size one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from p2plane.data.cloud import Cloud
from p2plane.registration.result import Matches, Registration
from p2plane.report.body import Body, body_of, some_rows
from p2plane.report.screws import Screw, screw

_NEAR = 1.3  # how far apart the clouds are drawn before, in mean sizes, when they really are farther


@dataclass(frozen=True)
class Scene:
    """Both clouds about the target's middle, in units of `scale`; the source is turned and carried to its place."""

    source: Body
    target: Body
    R: np.ndarray
    """(3, 3) turns the source as the pose does."""
    before: np.ndarray
    """(3,) where the source's middle is drawn before."""
    after: np.ndarray
    """(3,) where the pose puts it."""
    brought_closer: bool
    """Whether `before` is nearer than the truth, because both would be dots in the distance."""
    middle: np.ndarray
    """(3,) float64 the target's middle, in the target's units."""
    scale: float
    """The target's units in one unit of the scene."""
    residuals: np.ndarray
    """(N,) distance of each drawn source point to its partner's plane, in the target's units; NaN without a partner."""
    limit: float
    """The largest distance that has a colour of its own."""
    pairs: Pairs
    screws: tuple[Screw, ...]
    """Of the undetermined directions."""
    focus: np.ndarray
    """(3,) the middle of the overlap."""

    def moved_source(self, share: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """(N, 3) points and normals of the source before (0) or after (1)."""
        if share == 0:
            return self.source.points + self.before, self.source.normals
        return self.source.points @ self.R.T + self.after, self.source.normals @ self.R.T


@dataclass(frozen=True)
class Pairs:
    """Some of the matches."""

    source: np.ndarray
    """(K, 3) like the points of the source's `Body`."""
    target: np.ndarray
    """(K, 3) like those of the target's."""
    weights: np.ndarray
    """(K,) in [0, 1]."""
    total: int


def scene_of(registration: Registration, *, max_points: int, max_pairs: int = 800) -> Scene:
    """The scene of a registration.

    Args:
        registration: what `register` returned.
        max_points: of both clouds together; a random choice is drawn of larger ones.
        max_pairs: of the matches that are drawn as lines.
    """
    T = registration.T_target_source.double().numpy()
    source_middle, source_size = _box(registration.source)
    target_middle, target_size = _box(registration.target)
    scale = max(source_size, target_size) or 1.0
    before, brought_closer = _nearby((source_middle - target_middle) / scale, (source_size + target_size) / 2 / scale)
    drawn = _shares(len(registration.source), len(registration.target), max_points)
    source_rows, target_rows = (
        some_rows(len(cloud), count)
        for cloud, count in zip((registration.source, registration.target), drawn, strict=True)
    )
    residuals = _per_point(registration.matches, len(registration.source))[source_rows]
    size = registration.size / scale
    focus = (registration.center.double().numpy() - target_middle) / scale
    return Scene(
        source=body_of(registration.source, source_rows, source_middle, scale),
        target=body_of(registration.target, target_rows, target_middle, scale),
        R=T[:3, :3],
        before=before,
        after=(T[:3, :3] @ source_middle + T[:3, 3] - target_middle) / scale,
        brought_closer=brought_closer,
        middle=target_middle,
        scale=scale,
        residuals=residuals,
        limit=_limit(residuals, registration.inlier_distance),
        pairs=_pairs(registration, source_middle, target_middle, scale, max_pairs),
        screws=tuple(_placed(screw(row), focus, size) for row in registration.directions.double().numpy()),
        focus=focus,
    )


def _box(cloud: Cloud) -> tuple[np.ndarray, float]:
    """The middle (3,) of the bounding box, and its diagonal."""
    if len(cloud) == 0:
        return np.zeros(3), 0.0
    points = cloud.points.double()
    low, high = points.amin(0), points.amax(0)
    return ((low + high) / 2).numpy(), float((high - low).norm())


def _nearby(place: np.ndarray, size: float) -> tuple[np.ndarray, bool]:
    distance = float(np.linalg.norm(place))
    farthest = _NEAR * size
    return (place, False) if distance <= farthest or size == 0 else (place * (farthest / distance), True)


def _shares(first: int, second: int, most: int) -> tuple[int, int]:
    """How many of each to draw: all, or the same part of both."""
    if first + second <= most:
        return first, second
    share = round(most * first / (first + second))
    return share, most - share


def _per_point(matches: Matches, count: int) -> np.ndarray:
    residuals = np.full(count, np.nan)
    residuals[matches.source.numpy()] = matches.residuals.double().abs().numpy()
    return residuals


def _limit(residuals: np.ndarray, inlier_distance: float) -> float:
    """The distance that nearly all are below, rounded up to two digits."""
    known = residuals[np.isfinite(residuals)]
    limit = float(np.quantile(known, 0.97)) if len(known) else 0.0
    limit = limit or inlier_distance or 1.0
    step = 10.0 ** (np.floor(np.log10(limit)) - 1)
    return float(np.ceil(limit / step - 1e-9) * step)


def _pairs(
    registration: Registration, source_middle: np.ndarray, target_middle: np.ndarray, scale: float, most: int
) -> Pairs:
    matches = registration.matches
    rows = some_rows(len(matches.source), most)
    source = registration.source.points[matches.source[rows]].double().numpy()
    target = registration.target.points[matches.target[rows]].double().numpy()
    return Pairs(
        source=((source - source_middle) / scale).astype(np.float32),
        target=((target - target_middle) / scale).astype(np.float32),
        weights=matches.weights[rows].double().clamp(0, 1).numpy(),
        total=len(matches.source),
    )


def _placed(shape: Screw, focus: np.ndarray, size: float) -> Screw:
    return shape._replace(point=focus + size * shape.point)
