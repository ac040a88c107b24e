"""KITTI velodyne scans: float32 x y z intensity, nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np

from p2plane.data.cloud import Cloud
from p2plane.data.formats.content import Content, array

NAMES = ("x", "y", "z", "intensity")


def read(path: Path) -> Content:
    """The points of a scan, with their intensity."""
    size = path.stat().st_size
    if size == 0 or size % 16:
        raise ValueError(f"expected 16 bytes for each point, float32 x y z intensity, got {size} bytes")
    table = np.fromfile(path, "<f4").reshape(-1, 4)
    return Content(dict(zip(NAMES, table.T, strict=True)))


def write(file: BinaryIO, cloud: Cloud) -> None:
    """Write the points in float32, with the field ``intensity`` or zero; all else is left out."""
    table = np.zeros((len(cloud), 4), "<f4")
    table[:, :3] = array(cloud.points)
    if "intensity" in cloud.fields:
        table[:, 3] = array(cloud.fields["intensity"])
    file.write(table.tobytes())
