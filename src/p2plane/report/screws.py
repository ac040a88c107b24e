"""Directions that the geometry leaves open, as something to draw: an axis to slide along and to turn about."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# A part of a unit motion below this is not drawn.
_VISIBLE = 0.1
# An axis farther away than this, in sizes of the cloud, turns so little that the motion is drawn as a slide.
_FAR = 2.0


class Screw(NamedTuple):
    """A rigid motion: turning about an axis while sliding along it (Chasles)."""

    point: np.ndarray
    """(3,) of the axis, the nearest to the middle; in sizes of the cloud, from the middle."""
    axis: np.ndarray
    """(3,) of unit length."""
    turn: float
    """Share of the turning, in [0, 1]; zero for a slide."""
    slide: float
    """Share of the sliding along the axis, in [-1, 1]; zero for a turn in place."""


def screw(direction: np.ndarray) -> Screw:
    """The screw of a motion (omega, v) about the middle, v in sizes of the cloud.

    ``omega x (p - point) + slide axis = omega x p + v`` gives ``point = omega x v / |omega|^2``.

    Args:
        direction: (6,) of any length but zero.
    """
    omega, v = np.split(direction / np.linalg.norm(direction), 2)
    turn = float(np.linalg.norm(omega))
    arm = np.cross(omega, v) / max(turn**2, 1e-12)
    if turn < _VISIBLE or np.linalg.norm(arm) > _FAR:
        return Screw(np.zeros(3), v / np.linalg.norm(v), turn=0.0, slide=1.0)
    axis = omega / turn
    along = float(axis @ v)
    longer = max(turn, abs(along))
    slide = along / longer
    return Screw(arm, axis, turn=turn / longer, slide=slide if abs(slide) > _VISIBLE else 0.0)


def ring(shape: Screw, radius: float = 0.17, gap: float = 0.4, steps: int = 72) -> np.ndarray:
    """(steps + 1, 3) points of a ring about the axis, open by twice the gap, in radians."""
    first = np.cross(shape.axis, np.eye(3)[np.argmin(np.abs(shape.axis))])
    first /= np.linalg.norm(first)
    second = np.cross(shape.axis, first)
    angles = np.pi / 4 + np.linspace(gap, 2 * np.pi - gap, steps + 1)[:, None]
    return shape.point + radius * (np.cos(angles) * first + np.sin(angles) * second)
