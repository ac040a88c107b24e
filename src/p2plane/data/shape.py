"""One labelled object of a data set."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


def into_unit_sphere(points: Tensor) -> Tensor:
    """(N, 3) points, centred on their mean, the farthest at distance one; a single point comes to the origin."""
    centered = points - points.mean(dim=0)
    return centered / centered.norm(dim=1).max().clamp(min=1e-12)


@dataclass(frozen=True)
class Shape:
    """Points on the surface of one object; row i of the normals belongs to point i."""

    points: Tensor
    """(N, 3) float32, centred on the mean of the points and scaled into the unit sphere."""
    normals: Tensor
    """(N, 3) float32, of unit length, pointing out of the object."""
    label: int
    """Index of the category in the names of the data set."""
    name: str
    """The category."""

    def __post_init__(self) -> None:
        if self.points.ndim != 2 or self.points.shape[1] != 3:
            raise ValueError(f"points must have shape (N, 3), got {tuple(self.points.shape)}")
        if self.normals.shape != self.points.shape:
            expected, got = tuple(self.points.shape), tuple(self.normals.shape)
            raise ValueError(f"normals must have the shape {expected} of the points, got {got}")

    def __len__(self) -> int:
        return len(self.points)
