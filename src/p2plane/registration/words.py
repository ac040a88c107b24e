"""Motions that the geometry leaves open, sorted into slides and turns and put into words."""

from __future__ import annotations

import math

import torch
from torch import Tensor

PURE = 0.15  # a motion with less rotation than this, in radians per unit of size, is a slide
ALONG_AXIS = math.cos(math.radians(10))


def canonical(directions: Tensor) -> Tensor:
    """(D, 6) another basis of the same motions: slides first, then turns, along the coordinate axes where possible.

    Args:
        directions: (D, 6) orthonormal motions (omega, v), v in units of the size.
    """
    if len(directions) == 0:
        return directions
    U, turning, _ = torch.linalg.svd(directions[:, :3])
    turning = torch.nn.functional.pad(turning, (0, len(directions) - len(turning)))
    motions = U.mT @ directions
    slides, turns = motions[turning < PURE], motions[turning >= PURE]
    slides = torch.cat([torch.zeros_like(slides[:, :3]), slides[:, 3:]], dim=1)
    return torch.cat([_along_axes(slides, slice(3, 6)), _along_axes(turns, slice(0, 3))])


def in_words(directions: Tensor, center: Tensor, size: float) -> tuple[str, ...]:
    """What each of the canonical motions (D, 6) about a place (3,) does: "slides along x", "turns about z"."""
    return tuple(_words(direction, center, size) for direction in directions)


def _along_axes(motions: Tensor, part: slice) -> Tensor:
    """(K, 6) unit motions of the same space, of which one after the other has the most of one axis in its part."""
    basis: list[Tensor] = []
    while len(motions):
        parts = motions[:, part]
        axis = torch.zeros(3, 1, dtype=parts.dtype)
        axis[_reach(parts).argmax()] = 1.0
        # The combination of the motions whose part is nearest to that axis.
        motion = (torch.linalg.lstsq(parts.mT, axis).solution.mT @ motions)[0]
        basis.append(motion / motion.norm())
        motions = _without(motions, basis[-1])
    return torch.stack(basis) if basis else motions


def _reach(parts: Tensor) -> Tensor:
    """(3,) how much of each axis lies in the space that rows (K, 3) span."""
    _, sizes, axes = torch.linalg.svd(parts, full_matrices=False)
    return (axes[sizes > 1e-9]).square().sum(0)


def _without(motions: Tensor, motion: Tensor) -> Tensor:
    """(K - 1, 6) an orthonormal basis of the motions that have nothing of the one."""
    rest = motions - (motions @ motion)[:, None] * motion
    return torch.linalg.svd(rest, full_matrices=False).Vh[: len(motions) - 1]


def _words(direction: Tensor, center: Tensor, size: float) -> str:
    omega, v = direction[:3], direction[3:] * size
    if omega.norm() < 1e-9:
        return f"slides along {_axis(v)}"
    # The axis of a turn passes where nothing moves: omega x (p - center) + v is parallel to omega there.
    point = center + torch.linalg.cross(omega, v) / omega.square().sum()
    return f"turns about {_axis(omega)} through {_vector((point / size * 1000).round() * size / 1000)}"


def _axis(vector: Tensor) -> str:
    unit = vector / vector.norm()
    largest = int(unit.abs().argmax())
    if unit.abs()[largest] >= ALONG_AXIS:
        return "xyz"[largest]
    return _vector(unit * unit[largest].sign())


def _vector(vector: Tensor) -> str:
    return "(" + ", ".join(f"{entry + 0.0:.3g}" for entry in vector.tolist()) + ")"
