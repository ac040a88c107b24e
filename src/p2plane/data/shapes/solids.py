"""The solids that objects are made of, each as a part or a few parts to be moved and turned."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from p2plane.data.shapes.parts import Part, moved, turned
from p2plane.data.shapes.primitives import Array, Box, Prism, Revolution, Sphere, Torus


def box(width: float, depth: float, height: float) -> Part:
    """A box along x, y and z, standing on the origin."""
    return Part(Box(width, depth, height))


def prism(polygon: ArrayLike, height: float) -> Part:
    """A polygon (K, 2) in x and y, counter-clockwise, extruded upwards from z = 0."""
    return Part(Prism(polygon, height))


def silhouette(polygon: ArrayLike, depth: float) -> Part:
    """A polygon (K, 2) in x and z, counter-clockwise as one sees it from the front, extruded along y about y = 0."""
    return prism(polygon, depth).turned("x", math.pi / 2).at(0, depth / 2, 0)


def revolved(profile: ArrayLike) -> Part:
    """A polyline (K, 2) of radius and height, solid on its left, turned about the z axis."""
    return Part(Revolution(profile))


def cylinder(radius: float, height: float) -> Part:
    """An upright cylinder with both lids, standing on the origin."""
    return cone(radius, radius, height)


def cone(bottom: float, top: float, height: float) -> Part:
    """A cone, truncated where the radius `top` is not zero, with its lids, standing on the origin."""
    return revolved([(0, 0), (bottom, 0), (top, height)] + ([(0, height)] if top > 0 else []))


def sphere(radius: float) -> Part:
    """A sphere about the origin."""
    return Part(Sphere(radius))


def torus(major: float, minor: float, sweep: float = 2 * math.pi) -> Part:
    """A tube bent about the z axis, from the x axis through the angle `sweep`, without lids."""
    return Part(Torus(major, minor, sweep))


def rod(start: Sequence[float], end: Sequence[float], radius: float, end_radius: float | None = None) -> Part:
    """A round rod from one point to another, tapered when it has an `end_radius`."""
    origin, step = np.asarray(start, dtype=np.float64), np.subtract(end, start)
    length = float(np.linalg.norm(step))
    surface = cone(radius, radius if end_radius is None else end_radius, length).surface
    return Part(surface, _frame_along(step / length), origin)


def pipe(path: ArrayLike, radius: float, bend: float) -> list[Part]:
    """A round pipe along a path: straight pieces, bends between them, and a lid at either end.

    Args:
        path: (K, 3) corners; no two neighbouring pieces may run in one line.
        radius: of the pipe.
        bend: radius of the bends, at least that of the pipe and small enough to fit between the corners.

    Returns:
        The straight pieces in order along the path, then the bends.
    """
    corners = np.asarray(path, dtype=np.float64)
    steps = np.diff(corners, axis=0)
    directions = steps / np.linalg.norm(steps, axis=1, keepdims=True)
    angles = np.arccos(np.clip((directions[:-1] * directions[1:]).sum(axis=1), -1, 1))
    cut = np.concatenate([[0.0], bend * np.tan(angles / 2), [0.0]])  # what a bend takes off the pieces it joins
    starts = corners[:-1] + cut[:-1, None] * directions
    lengths = np.linalg.norm(steps, axis=1) - cut[:-1] - cut[1:]
    if lengths.min() <= 0:
        raise ValueError(f"bend must be small enough to fit between the corners of the path, got {bend}")
    parts = []
    for i, (start, direction, length) in enumerate(zip(starts, directions, lengths, strict=True)):
        tube = [(radius, 0), (radius, length)]
        profile = [(0, 0)] * (i == 0) + tube + [(0, length)] * (i == len(steps) - 1)  # lids at the ends alone
        parts.append(Part(Revolution(profile), _frame_along(direction), start))
    ends = starts + lengths[:, None] * directions
    for end, before, after, angle in zip(ends[:-1], directions[:-1], directions[1:], angles.tolist(), strict=True):
        parts.append(_bend(end, before, after, angle, radius, bend))
    return parts


def loop(start: Sequence[float], end: Sequence[float], out: Sequence[float], radius: float, bend: float) -> list[Part]:
    """A handle: a pipe from one point to another that stands off by the vector `out`."""
    first, last = np.asarray(start), np.asarray(end)
    return pipe(np.array([first, first + out, last + out, last]), radius, bend)


def _bend(start: Array, before: Array, after: Array, angle: float, radius: float, bend: float) -> Part:
    inwards = (after - math.cos(angle) * before) / math.sin(angle)  # from the start to the middle of the bend
    rotation = np.column_stack([-inwards, before, _cross(before, inwards)])
    return Part(Torus(bend, radius, angle), rotation, start + bend * inwards)


def hollow_box(width: float, depth: float, height: float, wall: float) -> list[Part]:
    """A box open at the top, standing on the origin; the sizes are those of its outside."""
    side = box(wall, depth, height)
    end = box(width - 2 * wall, wall, height)
    floor = box(width - 2 * wall, depth - 2 * wall, wall)
    x, y = (width - wall) / 2, (depth - wall) / 2
    return [floor, side.at(-x, 0, 0), side.at(x, 0, 0), end.at(0, -y, 0), end.at(0, y, 0)]


def case(width: float, depth: float, height: float, wall: float) -> list[Part]:
    """A box open at the front, towards -y, standing on the origin."""
    return moved(turned(hollow_box(width, height, depth, wall), "x", math.pi / 2), 0, depth / 2, height / 2)


def at_corners(part: Part, width: float, depth: float) -> list[Part]:
    """The part four times, at the corners of a rectangle about the origin."""
    return [part.at(x, y, 0) for x in (-width / 2, width / 2) for y in (-depth / 2, depth / 2)]


def _frame_along(direction: Array) -> Array:
    """(3, 3) rotation that takes z to a unit direction."""
    helper = (1.0, 0.0, 0.0) if abs(direction[0]) < 0.9 else (0.0, 1.0, 0.0)
    x = _cross(helper, direction)
    x = x / np.linalg.norm(x)
    return np.column_stack([x, _cross(direction, x), direction])


def _cross(a: Sequence[float] | Array, b: Sequence[float] | Array) -> Array:
    """The cross product of two vectors; np.cross takes ten times as long for so few numbers."""
    (a0, a1, a2), (b0, b1, b2) = a, b
    return np.array([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0])
