"""A camera that walks through the built-in room, and one that slides along a corridor or a wall."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor

from p2plane import Cloud, save_cloud, se3
from p2plane.data.room import scan_room
from tests.registration.scenes import scan

UNREADABLE, EMPTY = 3, 5


def write_walk(folder: Path, count: int = 7) -> Tensor:
    """Scans in files, two of which hold nothing; the true poses (K, 4, 4) in the frame of the first."""
    poses = []
    for index in range(count):
        angle = math.radians(20 + 4 * index)
        eye = (1.0 + 2.4 * math.cos(angle), 1.0 + 2.4 * math.sin(angle), 1.6 + 0.02 * index)
        cloud, T_room_camera = scan_room(eye, (0.9 + 0.03 * index, 0.8, 0.7), 6000, seed=index)
        save_cloud(folder / f"scan{index + 8}.ply", cloud)  # from scan8 to scan14
        poses.append(torch.from_numpy(T_room_camera))
    (folder / f"scan{UNREADABLE + 8}.ply").write_bytes(b"not a cloud")
    (folder / f"scan{EMPTY + 8}.ply").write_bytes(
        b"ply\nformat ascii 1.0\nelement vertex 0\nproperty float x\nproperty float y\nproperty float z\nend_header\n"
    )
    return se3.inverse(poses[0]) @ torch.stack(poses)


def sliding_scans(scene: str, count: int) -> tuple[list[Cloud], Tensor]:
    """Scans of a corridor along y or of a wall, 0.1 farther on each time, and their true poses (K, 4, 4)."""
    poses = torch.eye(4, dtype=torch.float64).repeat(count, 1, 1)
    poses[:, 1, 3] = 0.1 * torch.arange(count)
    poses[:, 0, 3] = 0.02 * torch.arange(count)
    clouds = [scan(scene, index) for index in range(count)]
    return [Cloud(se3.apply(se3.inverse(T), points)) for T, points in zip(poses, clouds, strict=True)], poses
