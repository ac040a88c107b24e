"""From a rough pose to the best one nearby: robust point-to-plane ICP whose reach shrinks."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from p2plane.classical.icp import icp
from p2plane.data.cloud import Cloud
from p2plane.solve.robust import Tukey


def refine(
    source: Cloud, target: Cloud, T_target_source: Tensor, reaches: Sequence[float], hold: Sequence[str] = ()
) -> Tensor:
    """(4, 4) the pose after ICP with one reach after the other.

    Args:
        source: with normals.
        target: with normals.
        T_target_source: (4, 4) where to start, and what held directions keep.
        reaches: how near partners must be, and where Tukey's kernel ends.
        hold: directions to hold, as in `point_to_plane`.
    """
    for reach in reaches:
        T_target_source = icp(
            source.points,
            target.points,
            source.normals,
            target.normals,
            initial=T_target_source,
            max_distance=reach,
            robust=Tukey(reach),
            hold=hold,
        ).T_target_source
    return T_target_source
