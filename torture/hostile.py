"""Pairs of clouds that nobody should hand in, and what the right answer to them is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from p2plane import se3
from tests.registration.scenes import scan, wall

POINTS = 750


class Hostile(NamedTuple):
    """Two clouds, row i of one belonging to row i of the other."""

    source: Tensor  # (N, 3)
    target: Tensor  # (N, 3)
    T_target_source: Tensor  # (4, 4)


def motion() -> Tensor:
    """(4, 4) T_target_source of a few degrees and centimetres."""
    return se3.exp(torch.tensor([0.05, -0.03, 0.08, 0.06, -0.04, 0.05], dtype=torch.float64))


def _room() -> Tensor:
    points = scan("room", 0)
    return points[:: len(points) // POINTS]


def _moved(points: Tensor, scale: float = 1.0) -> Hostile:
    """A cloud and where the motion takes it, both scaled."""
    return Hostile(scale * points, scale * se3.apply(motion(), points), _shifted(motion(), scale))


def _shifted(T: Tensor, scale: float = 1.0, by: float = 0.0) -> Tensor:
    """(4, 4) with a translation that is scaled, and then longer."""
    T[:3, 3] = scale * T[:3, 3] + by
    return T


def _with(value: float, step: int) -> Hostile:
    """Some coordinates replaced, others on each side."""
    pair = _moved(_room())
    pair.source[::step, 0], pair.target[1::step, 2] = value, value
    return pair


def _apart(distance: float) -> Hostile:
    """Half of the points far from the other half."""
    points = _room()
    points[::2] += torch.tensor([distance, 0.0, 0.0], dtype=points.dtype)
    return _moved(points)


def _far(distance: float) -> Hostile:
    source, target, T = _moved(_room())
    return Hostile(source, target + distance, _shifted(T, by=distance))


def _plane() -> Tensor:
    return wall(torch.Generator().manual_seed(0))[::2]


def _line() -> Tensor:
    return torch.linspace(0, 1, 300, dtype=torch.float64)[:, None] * torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)


OUTLIERS = ("one coordinate of 1e30", "one coordinate of -1e38")
"""Where least squares without a robust kernel has to follow one point."""
DENORMAL = ("everything times 1e-40, denormal in float32", "everything times 1e-312, denormal in float64")
"""Where a turn by a point's motion is a number larger than any."""

TORN = "two clusters, 1e8 apart"
"""In float32 the far cluster is a few points with normals that mean nothing: `icp` says that directions are open."""

HOSTILE: dict[str, Callable[[], Hostile]] = {
    "NaN in every tenth point": lambda: _with(float("nan"), 10),
    "nothing but NaN": lambda: _with(float("nan"), 1),
    "infinity in every tenth point": lambda: _with(float("inf"), 10),
    "one coordinate of 1e30": lambda: _with(1e30, POINTS * 2),
    "one coordinate of -1e38": lambda: _with(-1e38, POINTS * 2),
    "everything times 1e30": lambda: _moved(_room(), 1e30),
    "everything times 1e200": lambda: _moved(_room(), 1e200),
    "everything times 1e-40, denormal in float32": lambda: _moved(_room(), 1e-40),
    "everything times 1e-312, denormal in float64": lambda: _moved(_room(), 1e-312),
    "the target 1e9 away": lambda: _far(1e9),
    "the target 1e30 away": lambda: _far(1e30),
    TORN: lambda: _apart(1e8),
    "all points equal": lambda: _moved(torch.ones(500, 3, dtype=torch.float64)),
    "one plane": lambda: _moved(_plane()),
    "one line": lambda: _moved(_line()),
    "forty points, each twenty times": lambda: _moved(_room()[::20].repeat(20, 1)),
    "every point twice": lambda: _moved(_room().repeat(2, 1)),
    "one point": lambda: _moved(_room()[:1]),
    "two points": lambda: _moved(_room()[:2]),
    "no point": lambda: _moved(_room()[:0]),
}
