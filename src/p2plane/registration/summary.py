"""A `Registration` as plain values, for JSON, tables and scripts; and poses in files."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from p2plane.data.formats.arrays import plain_array
from p2plane.data.io import replacing
from p2plane.geometry import so3
from p2plane.registration.result import Registration

LARGEST_POSE = 1 << 20
"""Bytes; a larger file holds something else."""


def summary(registration: Registration) -> dict[str, Any]:
    """What JSON can hold of it: all but the clouds and their matches."""
    sigmas, spread = registration.covariance.diagonal().clamp(min=0).sqrt(), registration.spread
    return {
        "T_target_source": registration.T_target_source.tolist(),
        "angle_deg": math.degrees(float(so3.log(registration.R).norm())),
        "translation": float(registration.t.norm()),
        "confident": registration.confident,
        "confidence": registration.confidence,
        "fitness": registration.fitness,
        "inlier_rmse": registration.inlier_rmse,
        "plane_rmse": registration.plane_rmse,
        "normal_agreement": registration.normal_agreement,
        "inlier_distance": registration.inlier_distance,
        "sigma_angle_deg": math.degrees(float(sigmas[:3].norm())),
        "sigma_center": float(_sigma_at_center(registration)),
        "spread_angle_deg": math.degrees(spread.angle) if spread else None,
        "spread_center": spread.shift if spread else None,
        "undetermined": list(registration.undetermined),
        "warnings": list(registration.warnings),
        "information": registration.information.tolist(),
        "covariance": registration.covariance.tolist(),
        "candidates": [
            {
                "origins": list(each.origins),
                "score": each.score,
                "fitness": each.fitness,
                "plane_rmse": each.plane_rmse,
                "T_target_source": each.T_target_source.tolist(),
            }
            for each in registration.candidates
        ],
        "timings": dict(registration.timings),
    }


def save_pose(path: str | os.PathLike[str], registration: Registration) -> None:
    """Write the pose: ``.txt`` and ``.npy`` hold the 4x4 matrix, ``.json`` the whole `summary`."""
    path = Path(path)
    require_pose_suffix(path)
    with replacing(path) as file:
        if path.suffix == ".json":
            file.write(json.dumps(summary(registration), indent=2).encode())
        elif path.suffix == ".npy":
            np.save(file, registration.T_target_source.numpy())
        else:
            np.savetxt(file, registration.T_target_source.numpy(), fmt="%.17g")


def load_pose(path: str | os.PathLike[str]) -> Tensor:
    """(4, 4) float64 from a file such as `save_pose` writes."""
    path = Path(path)
    require_pose_suffix(path)
    if path.stat().st_size > LARGEST_POSE:
        raise ValueError(f"{path} must hold a 4x4 matrix, got {path.stat().st_size} bytes")
    try:
        matrix = POSE_READERS[path.suffix](path)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{path} must hold a 4x4 matrix, but it cannot be read: {error}") from error
    if matrix.shape != (4, 4):
        raise ValueError(f"{path} must hold a 4x4 matrix, got shape {matrix.shape}")
    return torch.from_numpy(matrix)


def require_pose_suffix(path: Path) -> None:
    """Refuse a file name that does not say how a pose is written."""
    if path.suffix not in POSE_SUFFIXES:
        raise ValueError(f"{path} must end with one of {POSE_SUFFIXES}, got {path.suffix!r}")


def _matrix_of_text(path: Path) -> np.ndarray:
    lines = (line.partition("#")[0].split() for line in path.read_text().splitlines())
    return np.array([[float(word) for word in words] for words in lines if words])


def _matrix_of_json(path: Path) -> np.ndarray:
    content = json.loads(path.read_text())
    return np.array(content["T_target_source"] if isinstance(content, dict) else content, dtype=float)


def _matrix_of_array(path: Path) -> np.ndarray:
    with path.open("rb") as file:
        return plain_array(file, path.stat().st_size).astype(float)


POSE_READERS: dict[str, Callable[[Path], np.ndarray]] = {
    ".txt": _matrix_of_text,
    ".json": _matrix_of_json,
    ".npy": _matrix_of_array,
}
POSE_SUFFIXES = tuple(POSE_READERS)


def _sigma_at_center(registration: Registration) -> Tensor:
    """Standard deviation of where the middle of the overlap comes to lie: ``omega x center + v``."""
    lever = torch.cat([-so3.hat(registration.center), torch.eye(3, dtype=torch.float64)], dim=1)  # (3, 6)
    return (lever @ registration.covariance @ lever.mT).diagonal().sum().clamp(min=0).sqrt()
