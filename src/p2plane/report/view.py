"""From where a scene is looked at."""

from __future__ import annotations

import math

import numpy as np

UPS = ("x", "y", "z", "-x", "-y", "-z")
# A cloud whose extent along an axis is less than this part of both others lies flat: that axis is up.
_FLAT = 0.4


def view_rotation(up: str, azimuth: float, elevation: float) -> np.ndarray:
    """(3, 3) rotation from the target frame to the eye's: right, up, and backwards to the eye.

    Args:
        up: one of `UPS`, the axis that is drawn upright.
        azimuth: of the eye about the upright axis, in degrees.
        elevation: of the eye over the horizon, in degrees.
    """
    if up not in UPS:
        raise ValueError(f"up must be one of {UPS}, got {up!r}")
    upright = np.roll(np.array([1.0, 0.0, 0.0]), UPS.index(up) % 3)
    forward, side = np.roll(upright, 1), np.roll(upright, 2)
    if up.startswith("-"):  # half a turn about `forward`
        upright, side = -upright, -side
    angle, height = math.radians(azimuth), math.radians(elevation)
    level = math.cos(angle) * forward + math.sin(angle) * side
    back = math.cos(height) * level + math.sin(height) * upright
    right = math.cos(angle) * side - math.sin(angle) * forward
    return np.stack([right, np.cross(back, right), back])


def guess_up(points: np.ndarray) -> str:
    """The axis along which (N, 3) points lie flat, or z."""
    if len(points) == 0:
        return "z"
    low, high = np.quantile(points, [0.02, 0.98], axis=0)
    extent = high - low
    flattest = int(np.argmin(extent))
    others = np.delete(extent, flattest).min()
    return "xyz"[flattest] if extent[flattest] < _FLAT * others else "z"
