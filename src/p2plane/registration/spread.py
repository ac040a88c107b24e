"""How far an answer hangs on the points that happened to be measured.

Both clouds are cut into halves at random, and each half settles anew. A half has twice the variance of the whole, so
its pose lies about one standard deviation of the whole's pose away from that: the jackknife that deletes a half. It
sees what a covariance of noise alone does not: partners that change, and slopes so gentle that other points end
elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from p2plane.data.cloud import Cloud
from p2plane.geometry import se3, so3
from p2plane.registration.refine import Settled, settle

CUTS = 8  # each gives two halves
FEWEST = 12  # points of a cloud that is cut
NEARLY = 1e-3  # at rest, in radians: they differ by more
EXACT = 1e-3  # of the spacing: deviations below that are alike


class Spread(NamedTuple):
    """How far the poses of halves lie from the pose of all points, root mean square."""

    angle: float
    """Radians."""
    shift: float
    """Of the middle of the source, in the target's units."""


def settled_halves(
    source: Cloud, target: Cloud, T_target_source: Tensor, spacing: float, hold: Sequence[str] = ()
) -> list[Settled]:
    """Where halves of both clouds settle from a pose; none where there are too few points. Arguments as in `settle`."""
    if min(len(source), len(target)) < FEWEST:
        return []
    random = torch.Generator().manual_seed(0)
    return [
        settle(half, other, T_target_source, spacing, hold, NEARLY)
        for _ in range(CUTS)
        for half, other in zip(_halves(source, random), _halves(target, random), strict=True)
    ]


def spread_about(halves: Sequence[Settled], T_target_source: Tensor, middle: Tensor) -> Spread | None:
    """How far halves lie from a pose (4, 4), judged at a place (3,) in the source frame; None if there are none."""
    if not halves:
        return None
    poses = torch.stack([half.T_target_source for half in halves])
    turns = so3.log(poses[:, :3, :3] @ T_target_source[:3, :3].mT)
    shifts = se3.apply(poses, middle[None])[:, 0] - se3.apply(T_target_source, middle[None])[0]
    return Spread(*(float(each.square().sum(-1).mean().sqrt()) for each in (turns, shifts)))


def mean_pose(settled: Sequence[Settled], spacing: float) -> Tensor:
    """(4, 4) the mean of poses that are close to each other, each with the weight of its inverse variance.

    Turns and shifts have means of their own, so that directions that all of them hold stay held. Where some halves find
    points that coincide, their pose is exact, and the others have next to no weight. Where no variance is known, it is
    the first pose.
    """
    poses = torch.stack([each.T_target_source for each in settled])
    deviations = torch.tensor([each.deviation for each in settled], dtype=poses.dtype) / spacing
    weights = 1 / (deviations.square() + EXACT**2)
    if not weights.any():
        return poses[0]
    weights = weights / weights.sum()
    T, R_first = poses[0].clone(), poses[0, :3, :3]
    T[:3, :3] = so3.exp(weights @ so3.log(poses[:, :3, :3] @ R_first.mT)) @ R_first
    T[:3, 3] = weights @ poses[:, :3, 3]
    return T


def _halves(cloud: Cloud, random: torch.Generator) -> Iterator[Cloud]:
    order = torch.randperm(len(cloud), generator=random)
    return (cloud.select(rows) for rows in order.chunk(2))
