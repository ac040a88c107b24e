"""From a rough pose to the best one nearby: robust ICP on the planes of both clouds, and in the end from both sides.

Partners must look alike: a pair counts only where its normals nearly agree. Without that, what has no counterpart in
the other cloud is drawn to whatever lies nearest, and where scans have half of themselves in common, that turns even
the true pose by tens of degrees.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from p2plane.classical.icp import icp
from p2plane.data.cloud import Cloud
from p2plane.geometry import se3
from p2plane.solve.alignment import Alignment
from p2plane.solve.robust import Tukey

REACH, WIDTH = 3.0, 1.3  # of partners, and of the kernel on their planes, in units of the spacing
TUKEY = 4.685  # standard deviations at which Tukey's kernel ends, for 95 % efficiency under Gaussian noise
NARROWER = 0.7  # a kernel is narrowed if its width shrinks at least by this factor
NARROWINGS = 6
SIMILAR = math.radians(45)  # between the normals of partners


class Settled(NamedTuple):
    """Where a pose settles."""

    T_target_source: Tensor  # (4, 4)
    deviation: float  # standard deviation of the distances to the planes, without outliers; infinite if unknown


def refine(
    source: Cloud, target: Cloud, T_target_source: Tensor, reaches: Sequence[float], hold: Sequence[str] = ()
) -> Tensor:
    """(4, 4) the pose after ICP with one reach of partners after the other.

    Args:
        source: with normals.
        target: with normals.
        T_target_source: (4, 4) where to start, and what held directions keep.
        reaches: how near partners must be, and where Tukey's kernel ends.
        hold: directions to hold, as in `point_to_plane`.
    """
    for reach in reaches:
        T_target_source = _icp(source, target, T_target_source, reach, reach, hold).T_target_source
    return T_target_source


def approach(source: Cloud, target: Cloud, T_target_source: Tensor, reach: float, hold: Sequence[str] = ()) -> Tensor:
    """(4, 4) the pose after ICP by nearest points, whatever their normals; arguments as in `refine`.

    It comes from farther away than `refine`, which believes no partner before its normal has nearly turned into place.
    """
    return _icp(source, target, T_target_source, reach, reach, hold, similar=None).T_target_source


def settle(
    source: Cloud,
    target: Cloud,
    T_target_source: Tensor,
    spacing: float,
    hold: Sequence[str] = (),
    tolerance: float | None = None,
) -> Settled:
    """The pose to which ICP settles from both sides, under a kernel as narrow as the noise allows.

    The point nearest to a point is found from one side; from the other side, other points are. So each cloud is brought
    onto the other, and the answer is halfway between. Arguments as in `refine`, with the spacing of the clouds,
    and the tolerance as in `icp`.
    """
    reach, width = REACH * spacing, WIDTH * spacing
    for _ in range(NARROWINGS):
        forth = _icp(source, target, T_target_source, reach, width, hold, tolerance=tolerance)
        T_target_source = forth.T_target_source
        if not hold:  # which are directions of the target's frame
            back = _icp(target, source, se3.inverse(T_target_source), reach, width, (), tolerance=tolerance)
            T_target_source = _halfway(T_target_source, se3.inverse(back.T_target_source))
        deviation = _deviation(forth)
        if not 1e-6 * spacing < TUKEY * deviation < NARROWER * width:
            break
        width = TUKEY * deviation
    return Settled(T_target_source, deviation)


def _icp(
    source: Cloud,
    target: Cloud,
    T: Tensor,
    reach: float,
    width: float,
    hold: Sequence[str],
    similar: float | None = SIMILAR,
    tolerance: float | None = None,
) -> Alignment:
    return icp(
        source.points,
        target.points,
        source.normals,
        target.normals,
        initial=T,
        distance="plane" if similar is None else "symmetric",
        max_distance=reach,
        max_normal_angle=similar,
        robust=Tukey(width),
        hold=hold,
        tolerance=tolerance,
    )


def _deviation(alignment: Alignment) -> float:
    """Standard deviation of the distances to the planes, by their median, so that outliers do not count."""
    weights = alignment.rounds[-1].weights
    assert weights is not None
    distances = alignment.residuals[weights.reshape(alignment.residuals.shape) > 0].abs()
    freedom = len(distances) - 6  # a pose fits six planes exactly, which says nothing of the others
    return 1.4826 * float(distances.median()) * math.sqrt(len(distances) / freedom) if freedom > 0 else math.inf


def _halfway(T: Tensor, T_other: Tensor) -> Tensor:
    """(4, 4) the pose in the middle of two that are close to each other."""
    return se3.exp(0.5 * se3.log(T_other @ se3.inverse(T))) @ T
