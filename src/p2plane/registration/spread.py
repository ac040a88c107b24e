"""How far an answer hangs on the points that happened to be measured.

Both clouds are cut into halves at random, and each half settles anew. A half has twice the variance of the whole, so
its pose lies about one standard deviation of the whole's pose away from that: the jackknife that deletes a half. It
sees what a covariance of noise alone does not: partners that change, and slopes so gentle that other points end
elsewhere. What all points of a neighbourhood have in common, such as the bend of a lens, it does not see.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from p2plane.data.cloud import Cloud
from p2plane.geometry import se3, so3
from p2plane.registration.check import Visibility
from p2plane.registration.refine import Settled, settle
from p2plane.registration.result import Spread

CUTS = 8  # each gives two halves
# In units of what a right answer may be off. Below the first, the pose of all points is better than the mean over
# halves; halves that spread wider than the second are cut as often again.
NOISY, WIDE = 0.08, 0.25
FEWEST = 12  # points of a cloud that is cut
NEARLY = 1e-3  # at rest, in radians and radii
EXACT = 1e-3  # of the spacing: deviations below that are alike


def settled_halves(
    source: Cloud,
    target: Cloud,
    T_target_source: Tensor,
    spacing: float,
    hold: Sequence[str] = (),
    cuts: Iterable[int] = range(CUTS),
) -> list[Settled]:
    """Where halves of both clouds settle from a pose; arguments as in `settle`, and the numbers of the cuts.

    Empty if there are too few points, or if half of the halves or more have too few partners to say where.
    """
    if min(len(source), len(target)) < FEWEST:
        return []
    halves = [
        settle(half, other, T_target_source, spacing, hold, NEARLY)
        for cut in cuts
        for half, other in zip(_halves(source, cut), _halves(target, cut), strict=True)
    ]
    settled = [half for half in halves if math.isfinite(half.deviation)]
    return settled if 2 * len(settled) > len(halves) else []


def spread_about(
    T_target_source: Tensor, poses: Sequence[Tensor], sight: Visibility, still_open: Tensor
) -> Spread | None:
    """How far poses lie from one of them (4, 4), but for the motions (D, 6) that are open; None if there are none."""
    if not poses:
        return None
    D = torch.stack(list(poses)) @ se3.inverse(T_target_source)
    shifts = se3.apply(D, sight.center[None])[:, 0] - sight.center
    motions = torch.cat([so3.log(D[:, :3, :3]), shifts / sight.scale], dim=1)
    known = motions - motions @ still_open.mT @ still_open
    turn, shift = (float(part.square().sum(-1).mean().sqrt()) for part in (known[:, :3], known[:, 3:]))
    return Spread(turn, sight.scale * shift)


def mean_pose(settled: Sequence[Settled], spacing: float) -> Tensor:
    """(4, 4) the mean of poses that are close to each other, each with the inverse square of its deviation as weight.

    Turns and shifts have means of their own, so that directions that all of them hold stay held. Where some halves find
    points that coincide, their pose is exact, and the others have next to no weight. Where no deviation is known, it is
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


def _halves(cloud: Cloud, cut: int) -> list[Cloud]:
    """Both of them.

    Points are numbered from the middle outwards, whatever their order is and wherever they lie, and every cloud is cut
    alike, so that an answer does not depend on which of two is the source.
    """
    outwards = (cloud.points - cloud.points.mean(0)).norm(dim=-1).argsort(stable=True)
    order = outwards[torch.randperm(len(cloud), generator=torch.Generator().manual_seed(cut))]
    return [cloud.select(rows) for rows in order.chunk(2)]
