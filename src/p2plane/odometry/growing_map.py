"""A map of all scans that stays small: one point a voxel, and larger voxels once there are too many."""

from __future__ import annotations

import torch
from torch import Tensor

from p2plane.geometry.voxels import voxel_thin

COARSER = 1.5


class GrowingMap:
    """Points (M, 3) of many scans, at most so many."""

    def __init__(self, max_points: int) -> None:
        self._max_points, self._voxel = max_points, 0.0
        self._points = torch.zeros(0, 3, dtype=torch.float64)
        self._fresh: list[Tensor] = []

    def add(self, points: Tensor, spacing: float) -> None:
        """Take in points (N, 3) that are so far apart."""
        self._voxel = self._voxel or spacing
        self._fresh.append(points)
        if sum(map(len, self._fresh)) > self._max_points:
            self._thin()

    def points(self) -> Tensor:
        """(M, 3) what there is."""
        self._thin()
        return self._points

    def _thin(self) -> None:
        points, self._fresh = torch.cat([self._points, *self._fresh]), []
        if self._voxel > 0:
            points = voxel_thin(points, self._voxel).points
        while len(points) > self._max_points:
            self._voxel = COARSER * self._voxel or float((points.amax(0) - points.amin(0)).max()) / len(points)
            points = voxel_thin(points, self._voxel).points
        self._points = points
