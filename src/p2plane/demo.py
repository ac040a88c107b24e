"""A pair of clouds made by program, aligned, with a few lines that say what was done."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from p2plane.geometry import se3, so3
from p2plane.solve.distances import point_to_plane, point_to_point

POINTS, NOISE = 2000, 0.01


def run_demo(seed: int = 0) -> str:
    """Align a noisy, moved copy of a built-in surface; the report, ready to print."""
    generator = torch.Generator().manual_seed(seed)
    source, source_normals = _ellipsoid(generator)
    T_true = se3.random(generator=generator)
    target = se3.apply(T_true, source) + NOISE * torch.randn(POINTS, 3, generator=generator)
    normals = se3.rotate(T_true, source_normals)

    normals.requires_grad_()
    alignment = point_to_plane(source, target, normals)
    alignment.energy.backward()
    assert normals.grad is not None
    covariance = alignment.covariance.diagonal().sqrt()
    rows = [
        f"p2plane demo: {POINTS} matched points, noise {NOISE}, "
        f"turned by {math.degrees(so3.log(T_true[:3, :3]).norm()):.0f} degrees (seed {seed})",
        "",
        _row("point_to_point", point_to_point(source, target).T_target_source, T_true),
        _row("point_to_plane", alignment.T_target_source.detach(), T_true),
        "",
        f"converged {bool(alignment.converged)} in {int(alignment.iterations)} steps; "
        f"{int(alignment.observability.determined)} of 6 directions determined",
        f"one sigma: {math.degrees(covariance[:3].norm()):.4f} degrees, {covariance[3:].norm():.6f} units",
        f"gradient of the energy by the normals: finite, largest {normals.grad.abs().max():.2e}",
        "",
        "T_target_source =",
        *("  ".join(f"{entry:9.5f}" for entry in row) for row in alignment.T_target_source.tolist()),
    ]
    return "\n".join(rows)


def _row(name: str, T: Tensor, T_true: Tensor) -> str:
    error = se3.log(se3.inverse(T_true) @ T)
    return f"{name}: {math.degrees(error[:3].norm()):.4f} degrees and {error[3:].norm():.6f} units from the truth"


def _ellipsoid(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(N, 3) points and unit normals of the level set ``|p / a|^2 = 1`` with unequal axes a."""
    directions = torch.randn(POINTS, 3, generator=generator)
    directions = directions / directions.norm(dim=-1, keepdim=True)
    axes = torch.tensor([1.0, 0.7, 0.5])
    normals = directions / axes
    return directions * axes, normals / normals.norm(dim=-1, keepdim=True)
