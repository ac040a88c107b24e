"""Trajectories in text files: KITTI's, TUM's, and plain matrices."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from p2plane.data.io import replacing
from p2plane.geometry import se3
from p2plane.geometry.quaternions import quaternion_of, rotation_of

PathLike = str | os.PathLike[str]


def write_kitti(path: PathLike, poses: Tensor) -> None:
    """Poses (K, 4, 4) as KITTI has them: a line each, the first three rows of the matrix."""
    _write(path, poses[:, :3].reshape(-1, 12).numpy())


def read_kitti(path: PathLike) -> Tensor:
    """(K, 4, 4) float64."""
    return se3.homogeneous(torch.from_numpy(_read(path, 12)).view(-1, 3, 4))


def write_tum(path: PathLike, poses: Tensor, times: Sequence[float]) -> None:
    """Poses (K, 4, 4) as TUM has them: ``time x y z qx qy qz qw``, a line each."""
    _write(path, np.hstack([np.asarray(times, dtype=float)[:, None], vectors_of(poses).numpy()]))


def read_tum(path: PathLike) -> tuple[Tensor, Tensor]:
    """(K,) times and (K, 4, 4) poses, float64."""
    table = torch.from_numpy(_read(path, 8))
    return table[:, 0], poses_of(table[:, 1:])


def write_matrices(path: PathLike, poses: Tensor) -> None:
    """Poses (K, 4, 4), one matrix of four lines after the other."""
    _write(path, poses.reshape(-1, 4).numpy())


def read_matrices(path: PathLike) -> Tensor:
    """(K, 4, 4) float64."""
    table = _read(path, 4)
    if len(table) % 4:
        raise ValueError(f"{path} must hold matrices of four lines, got {len(table)} lines")
    return torch.from_numpy(table).view(-1, 4, 4)


def read_times(path: PathLike) -> list[float]:
    """The first number of each line: KITTI's times, or a list of TUM's."""
    try:
        lines = [line.split() for line in Path(path).read_text().splitlines() if not line.lstrip().startswith("#")]
        return [float(words[0]) for words in lines if words]
    except ValueError as error:
        raise ValueError(f"{path} must begin each line with a time, but {error}") from error


def vectors_of(poses: Tensor) -> Tensor:
    """(K, 7) ``x y z qx qy qz qw`` of poses (K, 4, 4), qw not negative."""
    return torch.cat([poses[:, :3, 3], quaternion_of(poses[:, :3, :3])], dim=1)


def poses_of(vectors: Tensor) -> Tensor:
    """(K, 4, 4) the inverse of `vectors_of`."""
    quaternions = torch.nn.functional.normalize(vectors[:, 3:], dim=-1)
    return se3.from_rotation_translation(rotation_of(quaternions), vectors[:, :3])


def _write(path: PathLike, table: np.ndarray) -> None:
    with replacing(Path(path)) as file:
        np.savetxt(file, table, fmt="%.15g")


def _read(path: PathLike, columns: int) -> np.ndarray:
    try:
        table = np.loadtxt(path, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{path} must hold {columns} numbers a line, but {error}") from error
    if table.shape[1] != columns:
        raise ValueError(f"{path} must hold {columns} numbers a line, got {table.shape[1]}")
    return table
