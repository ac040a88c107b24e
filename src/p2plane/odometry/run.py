"""`odometry`: a series of scans in, a trajectory out."""

from __future__ import annotations

from typing import Any

from p2plane.classical.scales import positive_integer
from p2plane.geometry import se3
from p2plane.odometry.growing_map import GrowingMap
from p2plane.odometry.scans import list_scans, open_scans
from p2plane.odometry.track import track
from p2plane.odometry.trajectory import Step, Trajectory
from p2plane.registration.scan import spacing
from p2plane.work.progress import Progress


def odometry(
    scans: Any, *, max_points: int = 20_000, map_points: int = 500_000, seed: int = 0, show_progress: bool = False
) -> Trajectory:
    """Where each scan of a series was taken, in the frame of the first, by registering each onto the one before.

    Constant velocity says where to look, point-to-plane ICP from coarse to fine looks there, and the answer is checked
    as that of `register` is. Where the check fails, all poses are searched; where that fails too, or where the geometry
    leaves a direction open, the motion is that of constant velocity, and a warning says so. A scan that cannot be read
    or is empty is passed over likewise.

    Errors add up along the way, as nothing is compared but neighbours. The pose graph that `save_trajectory` writes is
    what a loop closure starts from.

    Scans are read one after the other, and two of them are in memory at once; a step takes about a kilobyte.

    Args:
        scans: a folder, whose clouds are taken in the order of their names, scan2 before scan10; or anything that can
            be iterated and holds what `register` takes, such as files, arrays (N, 3) or clouds.
        max_points: scans are thinned to so many.
        map_points: the most points of the map.
        seed: of what is random.
        show_progress: whether a bar is shown where there is a terminal.
    """
    positive_integer("max_points", max_points)
    positive_integer("map_points", map_points)
    given, count = list_scans(scans)
    steps: list[Step] = []
    whole, unsure, used = GrowingMap(map_points), 0, 0
    with Progress("odometry", count, 0, show_progress, "scans") as progress:
        for step, scan in track(open_scans(given, max_points), seed):
            steps.append(step)
            if scan is not None:
                points = se3.apply(step.T_world_scan @ scan.T_given_local, scan.cloud.points)
                whole.add(points, spacing(points))
                used += 1
            unsure += not step.confident
            progress.advance(1, f"{unsure} not confident" if unsure else "")
    if used < 2:
        reasons = [text for step in steps for text in step.warnings]
        raise ValueError(f"scans must hold at least two that can be used, got {used} of {len(steps)}: {reasons[:1]}")
    return Trajectory(tuple(steps), whole.points())
