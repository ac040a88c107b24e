"""Scenes whose geometry is known: a furnished room, and shapes that leave directions open."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from p2plane.geometry import se3, so3
from p2plane.registration.result import Registration


def motion(seed: int, size: float = 3.0) -> Tensor:
    """(4, 4) any rotation, and a shift."""
    generator = torch.Generator().manual_seed(seed)
    T = se3.random(generator=generator, dtype=torch.float64)
    T[:3, 3] *= size
    return T


def rectangle(
    count: int, corner: list[float], side: list[float], other: list[float], random: torch.Generator
) -> Tensor:
    """(count, 3) points of a rectangle."""
    shares = torch.rand(count, 2, generator=random, dtype=torch.float64)
    edges = torch.tensor([side, other], dtype=torch.float64)
    return torch.tensor(corner, dtype=torch.float64) + shares @ edges


def wall(random: torch.Generator) -> Tensor:
    """The plane y = 0: slides along x and z, turns about y."""
    return rectangle(1500, [0, 0, 0], [4, 0, 0], [0, 0, 2.5], random)


def corridor(random: torch.Generator) -> Tensor:
    """A floor and two walls along y."""
    parts = [
        rectangle(700, [0, 0, 0], [2, 0, 0], [0, 10, 0], random),
        rectangle(700, [0, 0, 0], [0, 10, 0], [0, 0, 2.5], random),
        rectangle(700, [2, 0, 0], [0, 10, 0], [0, 0, 2.5], random),
    ]
    return torch.cat(parts)


def sphere(random: torch.Generator) -> Tensor:
    """About the origin."""
    return torch.nn.functional.normalize(torch.randn(1500, 3, generator=random, dtype=torch.float64), dim=-1)


def room(random: torch.Generator) -> Tensor:
    """A floor, two walls and furniture of different heights, none like another."""
    parts = [
        rectangle(800, [0, 0, 0], [4, 0, 0], [0, 3, 0], random),
        rectangle(600, [0, 0, 0], [4, 0, 0], [0, 0, 2.2], random),
        rectangle(600, [0, 0, 0], [0, 3, 0], [0, 0, 2.2], random),
        rectangle(300, [0.5, 0.4, 0.8], [1.4, 0, 0], [0, 0.7, 0], random),
        rectangle(200, [0.5, 1.1, 0], [1.4, 0, 0], [0, 0, 0.8], random),
        rectangle(300, [2.8, 1.5, 0], [0.5, 0.6, 0], [0, 0, 1.5], random),
        rectangle(200, [1.0, 2.2, 0.4], [0.8, 0.3, 0], [-0.2, 0.5, 0.3], random),
    ]
    return torch.cat(parts)


SCENES = {"wall": wall, "corridor": corridor, "sphere": sphere, "room": room}


def scan(name: str, seed: int, noise: float = 0.004) -> Tensor:
    """(N, 3) noisy points of a scene; another seed gives other points of it."""
    random = torch.Generator().manual_seed(seed)
    points = SCENES[name](random)
    return points + noise * torch.randn(points.shape, generator=random, dtype=torch.float64)


def errors(result: Registration, T_true: Tensor, center: Tensor) -> tuple[float, float]:
    """Degrees, and distance at a place of the source."""
    angle = math.degrees(float(so3.log(result.R @ T_true[:3, :3].mT).norm()))
    T_change = result.T_target_source - T_true
    return angle, float((T_change[:3, :3] @ center + T_change[:3, 3]).norm())
