"""Registrations made by hand, with a known pose."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from p2plane import Cloud, point_to_plane, se3, so3
from p2plane.data.synthetic import SyntheticShapes
from p2plane.geometry.neighbors import knn
from p2plane.registration.confidence import Evidence
from p2plane.registration.result import Candidate, Matches, Registration
from p2plane.registration.spread import Spread


def turned(degrees: tuple[float, float, float], shift: tuple[float, float, float]) -> Tensor:
    """(4, 4) float64 pose of a rotation vector and a translation."""
    omega = torch.tensor([math.radians(angle) for angle in degrees], dtype=torch.float64)
    return se3.from_rotation_translation(so3.exp(omega), torch.tensor(shift, dtype=torch.float64))


def chair(points: int = 4000, *, category: str = "chair", noise: float = 0.004, **changes: Any) -> Registration:
    """Two scans of a chair that overlap in part."""
    shape = SyntheticShapes("test", points=2 * points, categories=[category]).shape(0)
    generator = torch.Generator().manual_seed(1)
    T = turned((20.0, -35.0, 70.0), (0.5, 0.2, -0.1))
    noisy = shape.points.double() + noise * torch.randn(shape.points.shape, generator=generator, dtype=torch.float64)
    first, second = torch.arange(2 * points) % 2 == 0, torch.arange(2 * points) % 2 == 1
    first &= noisy @ noisy.new_tensor([1.0, 0.3, 0.2]) < 0.45
    second &= noisy @ noisy.new_tensor([1.0, -0.3, 0.1]) > -0.45
    target = Cloud(noisy[second], shape.normals[second].double())
    T_source_target = se3.inverse(T)
    source = Cloud(se3.apply(T_source_target, noisy[first]), se3.rotate(T_source_target, shape.normals[first].double()))
    return registration(source, target, T, reach=0.05, **changes)


def wall(points: int = 4000, **changes: Any) -> Registration:
    """A flat wall: it may slide in its plane and turn about its normal."""
    generator = torch.Generator().manual_seed(2)
    height = torch.tensor([1.0, 1.0, 0.004], dtype=torch.float64)
    size = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)

    def sheet() -> Cloud:
        flat = torch.rand(points, 3, generator=generator, dtype=torch.float64) - 0.5
        flat[:, 2] = torch.randn(points, generator=generator, dtype=torch.float64)
        return Cloud(flat * size * height, torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64).expand(points, 3))

    T = turned((12.0, 8.0, 0.0), (0.0, 0.0, -0.6))
    moved, T_source_target = sheet(), se3.inverse(T)
    source = Cloud(se3.apply(T_source_target, moved.points), se3.rotate(T_source_target, moved.normals))
    directions = torch.zeros(3, 6, dtype=torch.float64)
    directions[0, 3] = directions[1, 4] = directions[2, 2] = 1.0
    opened = {
        "directions": directions,
        "undetermined": ("slides along x", "slides along y", "turns about z"),
        "confident": False,
        "confidence": 0.0,
        "warnings": ("the geometry leaves 3 of 6 directions open",),
    }
    return registration(source, sheet(), T, reach=0.1, **(opened | changes))


def empty(**changes: Any) -> Registration:
    """Two clouds without a point."""
    nothing = Cloud(torch.zeros(0, 3, dtype=torch.float64))
    unsure = {"confident": False, "confidence": 0.0, "size": 0.0, "warnings": ("the source has no points",)}
    return registration(nothing, nothing, torch.eye(4, dtype=torch.float64), reach=0.0, **(unsure | changes))


def registration(source: Cloud, target: Cloud, T: Tensor, *, reach: float, **changes: Any) -> Registration:
    """What `register` might say of two clouds at a pose."""
    matches = _matches(source, target, T, reach)
    moved = se3.apply(T, source.points.double())[matches.source]
    residuals = matches.residuals
    rmse = float(residuals.square().mean().sqrt()) if len(residuals) else 0.0
    offsets = moved - target.points.double()[matches.target]
    fitness = len(residuals) / max(len(source), 1)
    parts = dict(
        T_target_source=T,
        confident=True,
        confidence=0.97,
        evidence=Evidence(0.83, 0.11, 2, 0.985, fitness, 1.0, 0, 0.1),
        fitness=fitness,
        inlier_rmse=float(offsets.square().sum(-1).mean().sqrt()) if len(residuals) else 0.0,
        plane_rmse=rmse,
        normal_agreement=0.985,
        inlier_distance=reach,
        spread=Spread(0.002, 0.001),
        undetermined=(),
        directions=torch.zeros(0, 6, dtype=torch.float64),
        eigenvalues=torch.ones(6, dtype=torch.float64),
        center=moved.mean(0) if len(moved) else torch.zeros(3, dtype=torch.float64),
        size=float((target.points.amax(0) - target.points.amin(0)).norm()) if len(target) else 0.0,
        warnings=(),
        timings={"normals": 0.12, "search": 1.84, "refine": 0.31, "check": 0.05},
        candidates=(
            Candidate(("sweep", "tessera"), T, fitness, rmse, 0.83),
            Candidate(("initial",), torch.eye(4, dtype=torch.float64), 0.21, 3.1 * rmse, 0.11),
        ),
        source=source,
        target=target,
        matches=matches,
        **_uncertainty(source, target, matches),
    )
    return Registration(**(parts | changes))


def _matches(source: Cloud, target: Cloud, T: Tensor, reach: float) -> Matches:
    if len(source) == 0 or len(target) == 0:
        nobody = torch.zeros(0, dtype=torch.int64)
        return Matches(nobody, nobody, torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.float64))
    moved = se3.apply(T, source.points.double())
    nearest = knn(moved, target.points.double(), 1)
    rows = (nearest.distances[:, 0] < reach).nonzero()[:, 0]
    partners = nearest.indices[rows, 0]
    normals = torch.zeros(len(target), 3) if target.normals is None else target.normals
    residuals = ((moved[rows] - target.points[partners]) * normals[partners]).sum(-1).double()
    return Matches(rows, partners, residuals, (1 - (residuals / reach).abs()).clamp(0, 1).square())


def _uncertainty(source: Cloud, target: Cloud, matches: Matches) -> dict[str, Tensor]:
    if len(matches.source) < 6 or target.normals is None:
        return {name: torch.zeros(6, 6, dtype=torch.float64) for name in ("information", "covariance")}
    partners = matches.target
    normals = target.normals.double()
    found = point_to_plane(
        source.points[matches.source].double(), target.points[partners].double(), normals[partners], matches.weights
    )
    return {"information": found.information, "covariance": found.covariance}
