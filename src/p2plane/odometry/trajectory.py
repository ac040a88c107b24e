"""What `odometry` returns: where each scan was taken, and how that is known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

ORIGINS = ("start", "icp", "search", "predicted")


@dataclass(frozen=True)
class Step:
    """One scan of a series."""

    index: int
    """Its number in the series, from 0 on."""
    name: str
    """Of its file, or its number."""
    T_world_scan: Tensor
    """(4, 4) float64, from the scan's frame to that of the first scan."""
    origin: str
    """How the pose was found: "start" for the first scan; "icp" from where constant velocity would lead; "search" where
    that failed and all poses were searched; "predicted" where nothing but constant velocity is known."""
    previous: int | None = None
    """The scan that it was registered onto; None for the first."""
    T_previous_scan: Tensor | None = None
    """(4, 4) float64 the motion since."""
    information: Tensor | None = None
    """(6, 6) float64 of that motion, in the coordinates (omega, v) of `se3`, in the frame of the previous scan. Zero
    along directions that the geometry leaves open; next to nothing where the step is not confident."""
    confident: bool = True
    """Whether the motion may be used without a second look."""
    fitness: float = 0.0
    """Share of the scan's points that have a partner in the previous scan."""
    plane_rmse: float = 0.0
    """Root mean square distance of those points to the planes of their partners."""
    undetermined: tuple[str, ...] = ()
    """The directions that the geometry leaves open, in words; along them the motion is that of constant velocity."""
    warnings: tuple[str, ...] = ()
    """What a careful person would want to know."""


@dataclass(frozen=True)
class Trajectory:
    """The steps of a series, one for each scan, and a thinned map of all scans in the frame of the first."""

    steps: tuple[Step, ...]
    map: Tensor
    """(M, 3) float64."""

    def __len__(self) -> int:
        return len(self.steps)

    @cached_property
    def poses(self) -> Tensor:
        """(K, 4, 4) float64 T_world_scan of each scan."""
        return torch.stack([step.T_world_scan for step in self.steps])

    @property
    def confident(self) -> bool:
        """Whether every step is."""
        return all(step.confident for step in self.steps)

    @property
    def warnings(self) -> list[str]:
        """All warnings, with the scans that they belong to."""
        return [f"scan {step.index} ({step.name}): {text}" for step in self.steps for text in step.warnings]
