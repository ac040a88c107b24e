"""Parts: surfaces with a place. Objects are lists of parts, and their surface is what shows on the outside."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator

from p2plane.data.shapes.primitives import Array, Mask, Surface

_HAIR = 1e-6
"""How far above the surface one looks to see whether a point is covered; objects are about one unit large."""


@dataclass(frozen=True)
class Part:
    """A surface placed in the object: ``p_object = rotation @ p_part + position``."""

    surface: Surface
    rotation: Array = field(default_factory=lambda: np.eye(3))
    """(3, 3)."""
    position: Array = field(default_factory=lambda: np.zeros(3))
    """(3,)."""

    def at(self, x: float, y: float, z: float) -> Part:
        """The part, moved."""
        return Part(self.surface, self.rotation, self.position + np.array([x, y, z]))

    def turned(self, axis: str, angle: float) -> Part:
        """The part, turned about the "x", "y" or "z" axis of the object by an angle in radians."""
        turn = _rotation_about(axis, angle)
        return Part(self.surface, turn @ self.rotation, turn @ self.position)

    def sample(self, count: int, generator: Generator) -> tuple[Array, Array]:
        """(count, 3) points, uniform by area, and their outward unit normals, in the frame of the object."""
        points, normals = self.surface.sample(count, generator)
        return points @ self.rotation.T + self.position, normals @ self.rotation.T


def sample_outside(parts: Sequence[Part], count: int, generator: Generator) -> tuple[Array, Array]:
    """Points on the outside of an object, uniform by area and in random order, and their normals.

    What one part covers of another is left out: inner walls, and the faces in which two parts touch.

    Args:
        parts: what the object is made of; at least some of it must show.
        count: number of points.
        generator: source of all draws.

    Returns:
        (count, 3) points and (count, 3) outward unit normals, float64.
    """
    found, rows, draws = 0, [], 16 + 8 * count // 5  # enough for most objects in one go
    while found < count:
        points, normals = _sample_all(parts, draws, generator)
        outside = ~covers(parts, points + _HAIR * normals)  # its own part never covers a point: the hair is outside
        rows.append(np.hstack([points, normals])[outside])
        found += len(rows[-1])
        draws = 16 + int(1.1 * draws * (count - found) / max(len(rows[-1]), 1))  # what the rest should take
    chosen = np.concatenate(rows)[generator.permutation(found)[:count]]
    return chosen[:, :3], chosen[:, 3:]


def _sample_all(parts: Sequence[Part], count: int, generator: Generator) -> tuple[Array, Array]:
    areas = np.array([part.surface.area for part in parts])
    shares = generator.multinomial(count, areas / areas.sum()).tolist()
    samples = [part.sample(share, generator) for part, share in zip(parts, shares, strict=True) if share]
    return np.concatenate([points for points, _ in samples]), np.concatenate([normals for _, normals in samples])


def covers(parts: Sequence[Part], points: Array) -> Mask:
    """(N,) which of the (N, 3) points lie inside any of the parts."""
    inside_any = np.zeros(len(points), dtype=bool)
    columns = np.ascontiguousarray(points.T)
    for part in parts:
        shift = part.position @ part.rotation  # added to the bounds: six numbers instead of three columns
        local = part.rotation.T @ columns  # (3, N)
        inside = np.ones(len(points), dtype=bool)
        for values, lower, upper in zip(local, shift + part.surface.lower, shift + part.surface.upper, strict=True):
            inside &= values > lower
            inside &= values < upper
        candidates = inside.nonzero()[0]  # the bounds have ruled out nearly all
        if len(candidates):
            inside_any[candidates] |= part.surface.contains(local[:, candidates].T - shift)
    return inside_any


def moved(parts: Iterable[Part], x: float, y: float, z: float) -> list[Part]:
    """Several parts, moved together."""
    return [part.at(x, y, z) for part in parts]


def turned(parts: Iterable[Part], axis: str, angle: float) -> list[Part]:
    """Several parts, turned together."""
    return [part.turned(axis, angle) for part in parts]


def _rotation_about(axis: str, angle: float) -> Array:
    if axis not in ("x", "y", "z"):
        raise ValueError(f"axis must be 'x', 'y' or 'z', got {axis!r}")
    first, second = {"x": (1, 2), "y": (2, 0), "z": (0, 1)}[axis]
    rotation = np.eye(3)
    rotation[first, first] = rotation[second, second] = math.cos(angle)
    rotation[second, first] = math.sin(angle)
    rotation[first, second] = -math.sin(angle)
    return rotation
