"""A global search that needs no features and no training: sweep over all rotations, and let ICP sort them out.

Each rotation of a grid gets the translation at which the two clouds overlap most. From there all candidates make a few
rounds of ICP at once, with partners from a look-up table, while the distance at which partners count shrinks; those
with little overlap drop out on the way. The best that are left, and differ, are the proposals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from p2plane.classical.field import Field, Surface
from p2plane.classical.grids import best_translations
from p2plane.geometry import se3, so3


@dataclass(frozen=True)
class SweepSettings:
    """How thoroughly to search."""

    rotations: int = 300
    """On the grid; they are about 1 / cbrt(rotations) of a turn apart."""
    cells: int = 16
    """Of the correlation, along the longer cloud."""
    stages: tuple[tuple[int, tuple[float, ...]], ...] = (
        (150, (0.2, 0.15, 0.1)),
        (40, (0.08, 0.06, 0.05)),
        (16, (0.04, 0.04, 0.04, 0.03, 0.03, 0.03, 0.03, 0.03)),
    )
    """How many candidates are left after each stage, and the reach of its rounds in units of the target's diagonal."""
    point_share: float = 0.05
    """How much of the identity is added to ``n n^T``."""
    distinct_angle: float = math.radians(10)
    distinct_shift: float = 0.05
    """Proposals differ by this angle, or by this part of the target's diagonal."""
    proposals: int = 6


class Proposals(NamedTuple):
    """Poses worth a closer look, best first."""

    T_target_source: Tensor  # (P, 4, 4) float64
    overlaps: Tensor  # (P,) in [0, 1]


def sweep(
    source: Surface,
    target: Surface,
    *,
    rotations: Tensor | None = None,
    starts: Tensor | None = None,
    initial: Tensor | None = None,
    hold: Sequence[str] = (),
    settings: SweepSettings | None = None,
) -> Proposals:
    """The poses at which two clouds overlap best.

    Args:
        source: a few hundred points, evenly spread.
        target: some more.
        rotations: (K, 3, 3) to be tried; None for a grid over all of SO(3).
        starts: (S, 4, 4) poses to be tried besides.
        initial: (4, 4) what held directions keep; None for the identity.
        hold: directions that are known, as in `point_to_plane`; the rotations must respect them.
        settings: how thoroughly to search.
    """
    settings = settings or SweepSettings()
    rotations = so3.spread(settings.rotations) if rotations is None else rotations.double()
    shifts = best_translations(source.points, target.points, rotations, settings.cells)
    T = se3.from_rotation_translation(rotations, shifts)
    if starts is not None:
        T = torch.cat([T, starts.double()])
    if initial is not None:
        T = _with_held_translation(T, initial, hold)
    return _narrow(Field(source, target, settings.point_share, hold), T, settings)


def _narrow(field: Field, T: Tensor, settings: SweepSettings) -> Proposals:
    """Rounds of ICP for all, then for those that are left."""
    T = field.to_local(T)
    for keep, reaches in settings.stages:
        for reach in reaches:
            T = field.step(T, reach)
        overlaps = field.overlap(T, reaches[-1])
        order = overlaps.argsort(descending=True)[:keep]
        T, overlaps = T[order], overlaps[order]
    kept = distinct(T, torch.zeros(3, dtype=T.dtype), 1.0, settings)[: settings.proposals]
    return Proposals(field.to_caller(T[kept]), overlaps[kept])


def distinct(T: Tensor, center: Tensor, size: float, settings: SweepSettings) -> list[int]:
    """Rows of the poses (K, 4, 4) that are not close to an earlier one, judged at a place in the target frame."""
    kept: list[int] = []
    for row in range(len(T)):
        if not any(is_close(T[row], T[other], center, size, settings) for other in kept):
            kept.append(row)
    return kept


def is_close(T: Tensor, T_other: Tensor, center: Tensor, size: float, settings: SweepSettings) -> bool:
    """Whether two poses (4, 4) are the same proposal."""
    T_change = T @ se3.inverse(T_other)
    shift = (se3.apply(T_change, center[None])[0] - center).norm()
    angle = so3.log(T_change[:3, :3]).norm()
    return bool(angle < settings.distinct_angle and shift < settings.distinct_shift * size)


def _with_held_translation(T: Tensor, initial: Tensor, hold: Sequence[str]) -> Tensor:
    held = torch.tensor([name in hold for name in ("tx", "ty", "tz")], device=T.device)
    t = torch.where(held, initial[:3, 3].double(), T[:, :3, 3])
    return se3.from_rotation_translation(T[:, :3, :3], t)
