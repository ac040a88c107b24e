"""Surfaces that know their area, draw points uniformly upon themselves and tell inside from outside.

Each lives in its own frame, z up; `parts` gives it a place. Boxes, prisms and solids of revolution stand on the plane
z = 0, spheres and tori are centred on the origin. Points and normals are exact: no surface is cut into triangles first.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Surface(Protocol):
    """What every primitive offers."""

    area: float
    lower: tuple[float, float, float]
    """The least x, y and z of the solid."""
    upper: tuple[float, float, float]
    """The greatest x, y and z of the solid."""

    def sample(self, count: int, generator: Generator) -> tuple[Array, Array]:
        """(count, 3) points, uniform by area, and their (count, 3) outward unit normals."""
        ...

    def contains(self, points: Array) -> Mask:
        """(N,) which of the (N, 3) points, all between `lower` and `upper`, lie inside the solid."""
        ...


class Box:
    """A box standing on z = 0, its sides parallel to the axes."""

    def __init__(self, width: float, depth: float, height: float) -> None:
        _require_positive(width=width, depth=depth, height=height)
        self.size = np.array([width, depth, height])
        self.lower = (-width / 2, -depth / 2, 0.0)
        self.upper = (width / 2, depth / 2, height)
        self._areas = _running_sum([depth * height, width * height, width * depth])
        self.area = float(2 * self._areas[-1])

    def sample(self, count: int, generator: Generator) -> tuple[Array, Array]:
        points = generator.random((count, 3)) - 0.5
        rows, axis = np.arange(count), _choose(self._areas, count, generator)
        side = np.copysign(0.5, points[rows, axis])  # a point within the box goes to the nearer of the two faces
        points[rows, axis] = side
        normals = np.zeros((count, 3))
        normals[rows, axis] = 2 * side
        points[:, 2] += 0.5
        return points * self.size, normals

    def contains(self, points: Array) -> Mask:
        return np.ones(len(points), dtype=bool)


class Prism:
    """A polygon of the plane z = 0, extruded upwards.

    Args:
        polygon: (K, 2) corners, counter-clockwise. The mean of the corners must see all of the polygon.
        height: length of the extrusion.
    """

    def __init__(self, polygon: ArrayLike, height: float) -> None:
        _require_positive(height=height)
        self.polygon, self.height = _plane_points("polygon", polygon, least=3), height
        self._center = self.polygon.mean(axis=0)
        self._edges = np.roll(self.polygon, -1, axis=0) - self.polygon
        self._spokes = self.polygon - self._center
        triangles = 0.5 * (self._spokes[:, 0] * self._edges[:, 1] - self._spokes[:, 1] * self._edges[:, 0])
        if (triangles <= 0).any():
            raise ValueError(
                f"polygon must turn counter-clockwise about the mean of its corners, got {self.polygon.tolist()}"
            )
        lengths = np.hypot(*self._edges.T)
        self._walls = self._edges[:, ::-1] * (1, -1) / lengths[:, None]  # their normals
        self._areas = _running_sum(np.concatenate([lengths * height, triangles, triangles]))
        self.area = float(self._areas[-1])
        (least_x, least_y), (most_x, most_y) = self.polygon.min(axis=0).tolist(), self.polygon.max(axis=0).tolist()
        self.lower, self.upper = (least_x, least_y, 0.0), (most_x, most_y, height)

    def sample(self, count: int, generator: Generator) -> tuple[Array, Array]:
        kind, corner = np.divmod(_choose(self._areas, count, generator), len(self.polygon))  # 0 wall, 1 floor, 2 top
        along, across = generator.random((2, count))
        wall = kind == 0
        # In a triangle of the fan, across goes from the centre to an edge, and the square root evens out the area.
        reach = np.where(wall, 1.0, np.sqrt(across))
        points, normals = np.empty((count, 3)), np.zeros((count, 3))
        edge_points = self._spokes[corner] + along[:, None] * self._edges[corner]
        points[:, :2] = self._center + reach[:, None] * edge_points
        points[:, 2] = np.where(wall, across, kind == 2) * self.height
        normals[:, :2] = wall[:, None] * self._walls[corner]
        normals[:, 2] = np.where(wall, 0, 2 * kind - 3)
        return points, normals

    def contains(self, points: Array) -> Mask:
        return _odd_crossings(points[:, 0], points[:, 1], self.polygon, np.roll(self.polygon, -1, axis=0))


class Revolution:
    """The surface that a polyline sweeps out when it turns about the z axis: a row of truncated cones.

    The solid is on the left of the polyline, so a closed cylinder runs (0, 0), (r, 0), (r, h), (0, h). A polyline that
    does not start or end on the axis leaves a hole there, but its solid is the same as if lids closed it.

    Args:
        profile: (K, 2) pairs of a radius, zero or more, and a height.
    """

    def __init__(self, profile: ArrayLike) -> None:
        self.profile = _plane_points("profile", profile, least=2)
        if self.profile[:, 0].min() < 0:
            raise ValueError(f"profile must have radii of zero or more, got {self.profile[:, 0].min()}")
        self._starts, self._ends = self.profile[:-1], self.profile[1:]
        steps = self._ends - self._starts
        lengths = np.hypot(*steps.T)
        if lengths.min() == 0:
            raise ValueError(f"profile must not repeat a point, got {self.profile.tolist()}")
        self._normals = steps[:, ::-1] * (1, -1) / lengths[:, None]  # (radial, z)
        self._areas = _running_sum(math.pi * (self._starts[:, 0] + self._ends[:, 0]) * lengths)
        self.area = float(self._areas[-1])
        radius, heights = float(self.profile[:, 0].max()), self.profile[:, 1]
        self.lower = (-radius, -radius, float(heights.min()))
        self.upper = (radius, radius, float(heights.max()))

    def sample(self, count: int, generator: Generator) -> tuple[Array, Array]:
        piece = _choose(self._areas, count, generator)
        angle, share = generator.random((2, count))
        share = 1 - share  # in (0, 1], which keeps the tip of a cone from 0 / 0
        start, end, normal = self._starts[piece], self._ends[piece], self._normals[piece]
        # The square of the radius is uniform along a cone; written so that it also holds for a cylinder.
        first, last = start[:, 0], end[:, 0]
        radius = np.sqrt(first**2 + share * (last**2 - first**2))
        along = share * (first + last) / (first + radius)
        height = start[:, 1] + along * (end[:, 1] - start[:, 1])
        turn = _circle(2 * math.pi * angle)
        return _turned(turn, radius, height), _turned(turn, normal[:, 0], normal[:, 1])

    def contains(self, points: Array) -> Mask:
        # What closes the profile is level or lies on the axis: neither is ever crossed on the way outwards.
        return _odd_crossings(_distance_to_axis(points), points[:, 2], self._starts, self._ends)


class Sphere:
    """A sphere about the origin."""

    def __init__(self, radius: float) -> None:
        _require_positive(radius=radius)
        self.radius, self.area = radius, 4 * math.pi * radius**2
        self.lower, self.upper = (-radius, -radius, -radius), (radius, radius, radius)

    def sample(self, count: int, generator: Generator) -> tuple[Array, Array]:
        angle, height = generator.random((2, count))
        height = 2 * height - 1  # Archimedes: equal heights have equal areas
        normals = _turned(_circle(2 * math.pi * angle), np.sqrt(1 - height**2), height)
        return self.radius * normals, normals

    def contains(self, points: Array) -> Mask:
        return np.square(points).sum(axis=1) < self.radius**2


class Torus:
    """A tube bent about the z axis, from the x axis through the angle `sweep`; its ends are open.

    Args:
        major: distance from the axis to the middle of the tube.
        minor: radius of the tube, at most `major`.
        sweep: how far round it goes, in radians, up to a whole turn.
    """

    def __init__(self, major: float, minor: float, sweep: float = 2 * math.pi) -> None:
        _require_positive(major=major, minor=minor, sweep=sweep)
        if minor > major:
            raise ValueError(f"minor must be at most major = {major}, got {minor}")
        if sweep > 2 * math.pi:
            raise ValueError(f"sweep must be at most 2 pi, got {sweep}")
        self.major, self.minor, self.sweep = major, minor, sweep
        self.area = 2 * math.pi * major * minor * sweep
        reach = major + minor
        self.lower, self.upper = (-reach, -reach, -minor), (reach, reach, minor)

    def sample(self, count: int, generator: Generator) -> tuple[Array, Array]:
        angle, across, choice = generator.random((3, count))
        cosine, sine = _circle(2 * math.pi * across)
        # The area goes with major + minor cos. Mirroring a uniform angle this often gives exactly that density.
        mirrored = 2 * choice > 1 + self.minor / self.major * cosine
        cosine = np.where(mirrored, -cosine, cosine)
        turn = _circle(self.sweep * angle)
        return _turned(turn, self.major + self.minor * cosine, self.minor * sine), _turned(turn, cosine, sine)

    def contains(self, points: Array) -> Mask:
        in_tube = (_distance_to_axis(points) - self.major) ** 2 + points[:, 2] ** 2 < self.minor**2
        return in_tube & (np.arctan2(points[:, 1], points[:, 0]) % (2 * math.pi) < self.sweep)


def _distance_to_axis(points: Array) -> Array:
    return np.sqrt(points[:, 0] ** 2 + points[:, 1] ** 2)


def _circle(angle: Array) -> tuple[Array, Array]:
    return np.cos(angle), np.sin(angle)


def _turned(turn: tuple[Array, Array], radial: Array, height: Array) -> Array:
    """(N, 3) from cylindrical coordinates, the angle given by its cosine and sine."""
    return np.array([turn[0] * radial, turn[1] * radial, height]).T


def _running_sum(areas: ArrayLike) -> Array:
    return np.cumsum(areas, dtype=np.float64)


def _choose(running_areas: Array, count: int, generator: Generator) -> NDArray[np.intp]:
    """(count,) pieces, each as often as its area asks."""
    return running_areas.searchsorted(generator.random(count) * running_areas[-1], side="right")


def _odd_crossings(x: Array, y: Array, starts: Array, ends: Array) -> Mask:
    """Which points a ray towards greater x leaves through an odd number of the edges."""
    inside = np.zeros(len(x), dtype=bool)
    for (x0, y0), (x1, y1) in zip(starts.tolist(), ends.tolist(), strict=True):
        if y0 != y1:
            inside ^= ((y0 > y) != (y1 > y)) & (x < x0 + (y - y0) * ((x1 - x0) / (y1 - y0)))
    return inside


def _plane_points(name: str, values: ArrayLike, least: int) -> Array:
    points = np.asarray(values, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 2 or len(points) < least:
        raise ValueError(f"{name} must have shape (K, 2) with K at least {least}, got {points.shape}")
    return points


def _require_positive(**sizes: float) -> None:
    for name, size in sizes.items():
        if not size > 0:
            raise ValueError(f"{name} must be positive, got {size}")
