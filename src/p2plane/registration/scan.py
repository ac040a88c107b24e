"""A scan as the pipeline works on it: whatever the user has, as clean points with normals about their own centre."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from p2plane.classical.grids import extent_box
from p2plane.data.cloud import Cloud
from p2plane.data.io import load_cloud
from p2plane.geometry.neighbors import knn, refuse_too_large
from p2plane.geometry.normals import estimate_normals
from p2plane.geometry.voxels import voxel_thin

NORMAL_NEIGHBORS = 20
SPACING_SAMPLE = 2000
THINNINGS = 6


@dataclass(frozen=True)
class Scan:
    """A cloud of at most so many points, float64, with normals, moved to its own centre."""

    cloud: Cloud
    """(N, 3) about the centre; normals of unit length, zero where there are none."""
    center: Tensor
    """(3,) float64 where the centre was."""
    size: float
    """Diagonal of its bounding box, without outlying points; zero for a single place."""
    middle: Tensor
    """(3,) float64 of that box, in the coordinates of the cloud: zero where it was moved to its centre."""
    given: int
    """Points that came, not finite ones included."""
    dropped: int
    """Points that were not finite."""
    normals_estimated: bool

    @property
    def T_local_given(self) -> Tensor:
        """(4, 4) into the coordinates of the cloud, from those that came."""
        return _shift(-self.center)

    @property
    def T_given_local(self) -> Tensor:
        """(4, 4) its inverse."""
        return _shift(self.center)


def as_cloud(name: str, given: Any) -> Cloud:
    """A cloud from a file, an array or tensor (N, 3), a `Cloud`, or an Open3D point cloud.

    Points that are not finite are dropped and counted.
    """
    if isinstance(given, Cloud):
        return given
    if isinstance(given, str | os.PathLike):
        return load_cloud(given)
    if hasattr(given, "points") and hasattr(given, "has_normals"):
        return _from_open3d(name, given)
    if not isinstance(given, Tensor | np.ndarray | list | tuple):
        expected = "a file, an array (N, 3), a Cloud or an Open3D cloud"
        raise ValueError(f"{name} must be {expected}, got {type(given).__name__}")
    points = _rows(name, given)
    finite = points.isfinite().all(-1)
    return Cloud(points[finite], dropped=int((~finite).sum()))


def prepare(name: str, given: Any, max_points: int, *, centered: bool = True) -> Scan:
    """The scan of whatever a user has; see `as_cloud`. Not centred, it stays where it came."""
    cloud = as_cloud(name, given)
    if len(cloud) == 0:
        raise ValueError(f"{name} must hold at least one finite point, got {cloud.dropped} points, none of them finite")
    count, dropped = len(cloud) + cloud.dropped, cloud.dropped
    points = cloud.points.double()
    refuse_too_large(name, points)
    low, high = extent_box(points)
    middle = (low + high) / 2
    center = middle if centered else torch.zeros(3, dtype=torch.float64)
    normals = None if cloud.normals is None else cloud.normals.double()
    colors = cloud.colors
    cloud = Cloud(points - center, normals, colors)
    if len(cloud) > max_points:
        cloud = thin_to(cloud, max_points)
    estimated = normals is None or bool((cloud.normals == 0).all())  # type: ignore[union-attr]
    if estimated:
        cloud = replace(cloud, normals=estimate_normals(cloud.points, k=NORMAL_NEIGHBORS).normals)
    size = float((high - low).norm())
    return Scan(cloud, center, size, middle - center, count, dropped, estimated)


def _from_open3d(name: str, given: Any) -> Cloud:
    points = _rows(name, np.asarray(given.points))
    finite = points.isfinite().all(-1)
    normals = torch.from_numpy(np.asarray(given.normals))[finite] if given.has_normals() else None
    colors = torch.from_numpy(np.asarray(given.colors))[finite].float() if given.has_colors() else None
    return Cloud(points[finite], normals, colors, dropped=int((~finite).sum()))


def thin_to(cloud: Cloud, count: int) -> Cloud:
    """The cloud with at most so many points and hardly fewer, one a voxel, colours of the point in its middle."""
    if len(cloud) <= count:
        return cloud
    extent = float((cloud.points.amax(0) - cloud.points.amin(0)).max())
    size, best, tries = extent / math.sqrt(count) or 1.0, None, 0
    while best is None or (len(best.points) < 0.9 * count and tries < THINNINGS):
        thin = voxel_thin(cloud.points, size, cloud.normals)
        if len(thin.points) <= count and (best is None or len(thin.points) > len(best.points)):
            best = thin
        size *= math.sqrt(len(thin.points) / (0.95 * count))  # as many voxels meet a surface as its area needs
        tries += 1
    colors = None if cloud.colors is None else cloud.colors[best.indices]
    return Cloud(best.points, best.normals, colors)


def _shift(by: Tensor) -> Tensor:
    T = torch.eye(4, dtype=torch.float64)
    T[:3, 3] = by
    return T


def _rows(name: str, given: Any) -> Tensor:
    points = torch.as_tensor(np.asarray(given) if isinstance(given, list | tuple) else given).detach().cpu()
    if points.ndim != 2 or points.shape[1] != 3 or points.dtype == torch.bool or points.is_complex():
        raise ValueError(f"{name} must be an array of shape (N, 3), got {points.dtype} {tuple(points.shape)}")
    return points if points.is_floating_point() else points.double()


def spacing(points: Tensor) -> float:
    """Median distance from a point to the nearest other, over an even sample of the points."""
    if len(points) < 2:
        return 0.0
    step = max(1, len(points) // SPACING_SAMPLE)
    return float(knn(points[::step].contiguous(), points, 2).distances[:, 1].median())
