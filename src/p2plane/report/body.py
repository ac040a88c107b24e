"""A cloud as it is drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from p2plane.data.cloud import Cloud
from p2plane.geometry.neighbors import knn

_SAMPLE = 2000  # points at which the density of a cloud is measured
_NEIGHBORS = 7  # the point itself and six around it
_COVER = 0.58  # radius of a disc, in distances to the sixth neighbour, that closes the gaps of a surface
_ALONE = 0.01  # radius where there are too few points to measure


@dataclass(frozen=True)
class Body:
    """A cloud about some middle, in units of some length, so that it is about as large as one."""

    points: np.ndarray
    """(N, 3) float32."""
    normals: np.ndarray
    """(N, 3) float32, zero where a point has none."""
    colors: np.ndarray | None
    """(N, 3) uint8, the cloud's own."""
    total: int
    """How many points the cloud has, drawn or not."""
    radius: float
    """Of discs at the points that close the gaps between them."""


def body_of(cloud: Cloud, rows: Tensor, middle: np.ndarray, scale: float) -> Body:
    """Some points of a cloud as they are drawn.

    Args:
        cloud: all of it.
        rows: (M,) which points are drawn.
        middle: (3,) what becomes the origin.
        scale: what becomes the unit of length.
    """
    chosen = cloud.select(rows)
    points = ((chosen.points.double() - torch.from_numpy(middle)) / scale).float()
    normals = torch.zeros_like(points) if chosen.normals is None else chosen.normals.float()
    colors = None if chosen.colors is None else (chosen.colors.clamp(0, 1) * 255).round().byte().numpy()
    return Body(points.numpy(), normals.numpy(), colors, len(cloud), _covering_radius(points))


def some_rows(total: int, count: int) -> Tensor:
    """(count,) rows out of `total`, ascending: all, or a random choice that is always the same."""
    if count >= total:
        return torch.arange(total)
    return torch.randperm(total, generator=torch.Generator().manual_seed(0))[:count].sort().values


def _covering_radius(points: Tensor) -> float:
    if len(points) < _NEIGHBORS:
        return _ALONE
    query = points[some_rows(len(points), _SAMPLE)]
    return _COVER * float(knn(query, points, _NEIGHBORS).distances[:, -1].median())
