"""Trajectories as pose graphs: for g2o and what reads its files, and for Open3D.

Both measure how far an edge is off in the frame of the scan: ``D = Z^-1 T_previous_world T_world_scan``, with Z the
motion T_previous_scan of the edge. So the information of a step, which is in the frame of the previous scan, is moved.
Open3D takes the angles of D and its translation; g2o the translation of D and the vector part of its quaternion, which
is half the angles.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
from torch import Tensor

from p2plane.data.io import replacing
from p2plane.geometry import so3
from p2plane.odometry.poses import poses_of, vectors_of
from p2plane.odometry.trajectory import Step, Trajectory

PathLike = str | os.PathLike[str]


def write_g2o(path: PathLike, trajectory: Trajectory) -> None:
    """The steps as ``VERTEX_SE3:QUAT`` and ``EDGE_SE3:QUAT``; the first scan is fixed."""
    with replacing(Path(path)) as file:
        for step, vector in zip(trajectory.steps, vectors_of(trajectory.poses), strict=True):
            file.write(_line("VERTEX_SE3:QUAT", [step.index], vector))
        file.write(b"FIX 0\n")
        rows, columns = torch.triu_indices(6, 6)
        for step in trajectory.steps[1:]:
            assert step.previous is not None
            assert step.T_previous_scan is not None
            numbers = torch.cat([vectors_of(step.T_previous_scan[None])[0], g2o_information(step)[rows, columns]])
            file.write(_line("EDGE_SE3:QUAT", [step.previous, step.index], numbers))


def read_g2o(path: PathLike) -> tuple[dict[int, Tensor], list[tuple[int, int, Tensor, Tensor]]]:
    """The poses (4, 4) of the vertices by number, and (from, to, T_from_to (4, 4), information (6, 6)) of the edges."""
    vertices, edges = {}, []
    rows, columns = torch.triu_indices(6, 6)
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        kind, *words = line.split() or [""]
        try:
            if kind == "VERTEX_SE3:QUAT":
                vertices[int(words[0])] = _pose(words[1:8])
            elif kind == "EDGE_SE3:QUAT":
                information = torch.zeros(6, 6, dtype=torch.float64)
                information[rows, columns] = information[columns, rows] = _numbers(words[9:], 21)
                edges.append((int(words[0]), int(words[1]), _pose(words[2:9]), information))
        except (ValueError, IndexError) as error:
            raise ValueError(f"{path}, line {number}, must be a vertex or an edge, but {error}") from error
    return vertices, edges


def write_pose_graph(path: PathLike, trajectory: Trajectory) -> None:
    """The steps as a pose graph of Open3D, for ``open3d.io.read_pose_graph``; unsure ones are marked as uncertain."""
    nodes = [_versioned("PoseGraphNode", pose=_columns(step.T_world_scan)) for step in trajectory.steps]
    edges = [
        _versioned(
            "PoseGraphEdge",
            source_node_id=step.index,
            target_node_id=step.previous,
            transformation=_columns(step.T_previous_scan),
            information=_columns(open3d_information(step)),
            uncertain=not step.confident,
            confidence=1.0,
        )
        for step in trajectory.steps[1:]
    ]
    with replacing(Path(path)) as file:
        file.write(json.dumps(_versioned("PoseGraph", nodes=nodes, edges=edges), indent=1).encode())


def open3d_information(step: Step) -> Tensor:
    """(6, 6) of the angles and the translation of D."""
    return _moved(step, 1.0)


def g2o_information(step: Step) -> Tensor:
    """(6, 6) of the translation and the quaternion's vector of D."""
    return _moved(step, 0.5).roll((3, 3), (0, 1))


def _moved(step: Step, half: float) -> Tensor:
    """(6, 6) the information of D, its angles times a factor.

    With ``T = [exp(omega) R | exp(omega) t + v]`` about Z = [R | t], D is ``[R^T omega, R^T (v + omega x t)]``.
    """
    assert step.T_previous_scan is not None
    assert step.information is not None
    R, t = step.T_previous_scan[:3, :3], step.T_previous_scan[:3, 3]
    to_scan = torch.zeros(6, 6, dtype=torch.float64)
    to_scan[:3, :3], to_scan[3:, 3:], to_scan[3:, :3] = half * R.mT, R.mT, -R.mT @ so3.hat(t)
    inverse = torch.linalg.inv(to_scan)
    information = inverse.mT @ step.information @ inverse
    return (information + information.mT) / 2


def _columns(matrix: Tensor | None) -> list[float]:
    """Column after column, as Eigen has them."""
    assert matrix is not None
    return matrix.mT.flatten().tolist()


def _versioned(class_name: str, **content: object) -> dict[str, object]:
    return {"class_name": class_name, "version_major": 1, "version_minor": 0, **content}


def _line(kind: str, numbers: list[int], values: Tensor) -> bytes:
    return " ".join([kind, *map(str, numbers), *(f"{value:.15g}" for value in values.tolist())]).encode() + b"\n"


def _numbers(words: list[str], count: int) -> Tensor:
    if len(words) != count:
        raise ValueError(f"{count} numbers were expected, got {len(words)}")
    return torch.tensor([float(word) for word in words], dtype=torch.float64)


def _pose(words: list[str]) -> Tensor:
    return poses_of(_numbers(words, 7)[None])[0]
