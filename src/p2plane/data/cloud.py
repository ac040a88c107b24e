"""A point cloud: points, and what is known about each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from torch import Tensor

from p2plane.geometry import se3


@dataclass(frozen=True)
class Cloud:
    """Points with what is known about each of them: row i of everything belongs to point i."""

    points: Tensor
    """(N, 3), float32 or float64, all finite."""
    normals: Tensor | None = None
    """(N, 3) of unit length, zero where a point has none; the dtype of the points."""
    colors: Tensor | None = None
    """(N, 3) red, green, blue in [0, 1], float32."""
    fields: Mapping[str, Tensor] = field(default_factory=lambda: MappingProxyType({}))
    """(N,) further scalars by name, as they came: intensity, ring, time ..."""
    dropped: int = 0
    """How many points were left out on loading because a coordinate was not finite."""

    def __post_init__(self) -> None:
        count = _rows("points", self.points, 3)
        if not self.points.is_floating_point():
            raise ValueError(f"points must be float32 or float64, got {self.points.dtype}")
        for name, array in (("normals", self.normals), ("colors", self.colors)):
            if array is not None and _rows(name, array, 3) != count:
                raise ValueError(f"{name} must have one row for each of the {count} points, got {len(array)}")
        for name, array in self.fields.items():
            if array.shape != (count,):
                raise ValueError(f"field {name!r} must have shape ({count},), got {tuple(array.shape)}")

    def __len__(self) -> int:
        return len(self.points)

    def select(self, which: Tensor) -> Cloud:
        """The points that an index (M,) or a mask (N,) picks, with all that belongs to them."""
        return replace(
            self,
            points=self.points[which],
            normals=None if self.normals is None else self.normals[which],
            colors=None if self.colors is None else self.colors[which],
            fields={name: array[which] for name, array in self.fields.items()},
        )

    def moved(self, T_target_source: Tensor) -> Cloud:
        """The cloud after a motion (4, 4), computed in float64; all but points and normals stays."""
        T = T_target_source.double()
        points = se3.apply(T, self.points.double()).to(self.points.dtype)
        normals = None if self.normals is None else se3.rotate(T, self.normals.double()).to(self.normals.dtype)
        return replace(self, points=points, normals=normals)


def _rows(name: str, array: Tensor, columns: int) -> int:
    if array.ndim != 2 or array.shape[1] != columns:
        raise ValueError(f"{name} must have shape (N, {columns}), got {tuple(array.shape)}")
    return len(array)
