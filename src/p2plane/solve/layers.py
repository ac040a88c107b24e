"""The functions of `distances` as modules: settings in the constructor, clouds in the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from p2plane.solve import distances
from p2plane.solve.alignment import Alignment


class _Layer(nn.Module):
    """A distance function with its settings; calling it takes the function's arrays, and `initial` where it differs.

    Args:
        settings: keyword arguments of the function, such as ``gradient="penalty"`` or ``robust=Huber(0.1)``.
    """

    function: Callable[..., Alignment]

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings = settings

    def forward(self, *arrays: Any, **more: Any) -> Alignment:
        """An `Alignment`; arguments as in the function."""
        return type(self).function(*arrays, **(self.settings | more))

    def extra_repr(self) -> str:
        """The settings, for printing."""
        return ", ".join(f"{name}={value!r}" for name, value in self.settings.items())


class PointToPlane(_Layer):
    """`point_to_plane` as a module: ``PointToPlane()(source, target, normals, weights)``."""

    function = staticmethod(distances.point_to_plane)


class PointToPoint(_Layer):
    """`point_to_point` as a module: ``PointToPoint()(source, target, weights)``."""

    function = staticmethod(distances.point_to_point)


class PointToDistribution(_Layer):
    """`point_to_distribution` as a module: ``PointToDistribution()(source, target, precisions, weights)``."""

    function = staticmethod(distances.point_to_distribution)


class SymmetricPointToPlane(_Layer):
    """`symmetric_point_to_plane` as a module, called with source, target, and the normals of both."""

    function = staticmethod(distances.symmetric_point_to_plane)


class PlaneToPlane(_Layer):
    """`plane_to_plane` as a module, called with source, target, and the covariances of both."""

    function = staticmethod(distances.plane_to_plane)
