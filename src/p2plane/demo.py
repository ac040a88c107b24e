"""A pair of clouds made by program, aligned, with a few lines that say what was done."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from p2plane.geometry import se3, so3
from p2plane.solve.alignment import Alignment
from p2plane.solve.distances import point_to_plane, point_to_point, symmetric_point_to_plane

POINTS, NOISE, SLIDE = 2000, 0.002, 0.2
AXES = torch.tensor([1.0, 0.7, 0.5])


def run_demo(seed: int = 0) -> str:
    """Align two scans of a built-in surface; the report, ready to print.

    The partners are on the same surface but not the same points, as in real scans: they slide along it.
    """
    generator = torch.Generator().manual_seed(seed)
    source, source_normals = _ellipsoid(generator)
    T_true = se3.random(generator=generator)
    target, normals = _slide(source, generator)
    target, normals = se3.apply(T_true, target), se3.rotate(T_true, normals)
    target = target + NOISE * torch.randn(POINTS, 3, generator=generator)

    by_plane = point_to_plane(source, target, normals)
    angle = math.degrees(so3.log(T_true[:3, :3]).norm())
    sigma = by_plane.covariance.diagonal().sqrt()
    gradient = _gradient_by_target(source, target, normals)
    lines = [
        f"Two scans of an ellipsoid, {POINTS} pairs, noise {NOISE}, partners about {SLIDE} apart along the surface,",
        f"turned by {angle:.0f} degrees (seed {seed}). Distance from the true motion:",
        "",
        _line("point_to_point", point_to_point(source, target), T_true),
        _line("point_to_plane", by_plane, T_true),
        _line("symmetric_point_to_plane", symmetric_point_to_plane(source, target, source_normals, normals), T_true),
        "",
        f"point_to_plane: {int(by_plane.observability.determined)} of 6 directions determined,",
        f"one sigma {math.degrees(sigma[:3].norm()):.4f} degrees, {sigma[3:].norm():.5f} units;",
        f"its angle changes by at most {gradient.norm(dim=-1).max():.1e} rad when a target point moves by one unit.",
        "",
        "T_target_source =",
        *("  ".join(f"{entry:9.5f}" for entry in row) for row in by_plane.T_target_source.tolist()),
    ]
    return "\n".join(lines)


def _line(name: str, alignment: Alignment, T_true: Tensor) -> str:
    error = se3.log(se3.inverse(T_true) @ alignment.T_target_source)
    steps = f"converged {bool(alignment.converged)} in {int(alignment.iterations)} steps"
    return f"  {name:25s} {math.degrees(error[:3].norm()):7.4f} degrees  {error[3:].norm():.5f} units   {steps}"


def _gradient_by_target(source: Tensor, target: Tensor, normals: Tensor) -> Tensor:
    """(N, 3) derivative of the pose's rotation angle by the target points."""
    target = target.clone().requires_grad_()
    so3.log(point_to_plane(source, target, normals).R).norm().backward()
    assert target.grad is not None
    return target.grad


def _ellipsoid(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(N, 3) points and unit normals."""
    directions = torch.nn.functional.normalize(torch.randn(POINTS, 3, generator=generator), dim=-1)
    return directions * AXES, torch.nn.functional.normalize(directions / AXES, dim=-1)


def _slide(points: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(N, 3) other points of the same ellipsoid nearby, and their unit normals."""
    nearby = points + SLIDE * torch.nn.functional.normalize(torch.randn(POINTS, 3, generator=generator), dim=-1)
    directions = torch.nn.functional.normalize(nearby / AXES, dim=-1)
    return directions * AXES, torch.nn.functional.normalize(directions / AXES, dim=-1)
