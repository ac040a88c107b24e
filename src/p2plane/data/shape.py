"""One labelled object, and what every data set of such objects has in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


class ShapeDataset:
    """Shapes by their number, from zero or from the end; a data set says how to get one."""

    names: Sequence[str]
    """All categories in alphabetical order; a label is an index in it."""
    labels: Tensor
    """(len,) int64, known without making a shape."""

    def shape(self, index: int) -> Shape:
        """The shape of a number that is in range."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Shape]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> Shape:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index must be between {-len(self)} and {len(self) - 1}, got {index}")
        return self.shape(index % len(self))
