"""All files of a trajectory in one folder."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path

from p2plane.data.io import replacing, save_cloud
from p2plane.odometry.graph import write_g2o, write_pose_graph
from p2plane.odometry.poses import write_kitti, write_matrices, write_tum
from p2plane.odometry.trajectory import Trajectory

STEPS = ("index", "name", "origin", "confident", "fitness", "plane_rmse", "undetermined", "warnings")


def save_trajectory(
    folder: str | os.PathLike[str], trajectory: Trajectory, times: Sequence[float] | None = None
) -> None:
    """Write what others can read; a line or a vertex for each scan, also for those that could not be used.

    ``kitti.txt``, ``tum.txt`` and ``matrices.txt`` hold the poses T_world_scan, ``graph.g2o`` and ``graph.json``
    (Open3D) the poses and the motions with their information, ``map.ply`` the map, and ``steps.csv`` what there is to
    say about each scan.

    Args:
        folder: made if it is not there.
        trajectory: what `odometry` returned.
        times: of the scans, for TUM's file; None for their numbers.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if times is None:
        times = range(len(trajectory))
    elif len(times) != len(trajectory):
        raise ValueError(f"times must be as many as scans, {len(trajectory)}, got {len(times)}")
    poses = trajectory.poses
    write_kitti(folder / "kitti.txt", poses)
    write_tum(folder / "tum.txt", poses, times)
    write_matrices(folder / "matrices.txt", poses)
    write_g2o(folder / "graph.g2o", trajectory)
    write_pose_graph(folder / "graph.json", trajectory)
    save_cloud(folder / "map.ply", trajectory.map.float())
    _write_steps(folder / "steps.csv", trajectory)


def _write_steps(path: Path, trajectory: Trajectory) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(STEPS)
    for step in trajectory.steps:
        words = "; ".join(step.undetermined), "; ".join(step.warnings)
        numbers = int(step.confident), f"{step.fitness:.6g}", f"{step.plane_rmse:.6g}"
        writer.writerow([step.index, step.name, step.origin, *numbers, *words])
    with replacing(path) as file:
        file.write(text.getvalue().encode(errors="backslashreplace"))
