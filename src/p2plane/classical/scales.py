"""The scales of a coarse-to-fine registration, and the clouds as each of them sees them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from p2plane.geometry.voxels import voxel_thin
from p2plane.solve.robust import RobustKernel


@dataclass(frozen=True)
class Scale:
    """How coarsely `icp` looks for a while; None stands for what `icp` itself was told.

    Args:
        voxel: both clouds are thinned to one point in each cube of this edge; None for all points.
        max_distance: how far partners may be apart.
        max_iterations: the most rounds.
        robust: the kernel.
    """

    voxel: float | None = None
    max_distance: float | None = None
    max_iterations: int | None = None
    robust: RobustKernel | None = None

    def __post_init__(self) -> None:
        positive_or_none("voxel", self.voxel)
        positive_or_none("max_distance", self.max_distance)
        if self.max_iterations is not None:
            positive_integer("max_iterations", self.max_iterations)
        if self.robust is not None and not isinstance(self.robust, RobustKernel):
            raise ValueError(f"robust must be a kernel such as Huber(0.1), got {self.robust!r}")


def coarse_to_fine(
    voxel: float,
    levels: int = 3,
    reach: float = 3.0,
    max_iterations: int | None = None,
    kernel: Callable[[float], RobustKernel] | None = None,
) -> list[Scale]:
    """Scales whose voxels halve from one to the next.

    Args:
        voxel: the edge at the last and finest scale.
        levels: how many scales.
        reach: the maximum distance of partners, in voxels.
        max_iterations: of each scale.
        kernel: such as `Tukey`, made for each scale with the edge of its voxels.
    """
    positive_or_none("voxel", voxel)
    positive_or_none("reach", reach)
    positive_integer("levels", levels)
    edges = [voxel * 2**level for level in reversed(range(levels))]
    return [Scale(edge, reach * edge, max_iterations, None if kernel is None else kernel(edge)) for edge in edges]


@dataclass(frozen=True)
class Surface:
    """The points of one cloud, with what is known about each of them."""

    points: Tensor  # (N, 3)
    rows: Tensor  # (N,) int64 where they are, or their nearest is, in the caller's cloud
    normals: Tensor | None  # (N, 3)

    def thinned(self, voxel: float | None) -> Surface:
        """The surface with one point a voxel: the mean of what is in it."""
        if voxel is None:
            return self
        thin = voxel_thin(self.points, voxel, self.normals)
        return Surface(thin.points, self.rows[thin.indices], thin.normals)


def positive_or_none(name: str, value: float | None) -> None:
    """Refuse what is neither None nor positive."""
    if value is not None and not 0 < value <= math.inf:
        raise ValueError(f"{name} must be positive or None, got {value!r}")


def positive_integer(name: str, value: int) -> None:
    """Refuse what is not a positive integer."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")


def surface_of(points: Tensor, normals: Tensor | None, mask: Tensor | None) -> Surface:
    """The present points of a cloud (N, 3) with its mask (N,)."""
    if mask is None:
        return Surface(points, torch.arange(len(points), device=points.device), normals)
    rows = mask.nonzero()[:, 0]
    return Surface(points[rows], rows, None if normals is None else normals[rows])
