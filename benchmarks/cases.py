"""Matched pairs with a known motion, the layer under test, and its rivals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import roma
import torch
from torch import Tensor
from torch.nn.functional import normalize

from measure import Contestant
from p2plane import point_to_plane, se3


class Case(NamedTuple):
    """Row i of the source belongs to row i of everything else; `T_target_source` is the true motion."""

    source: Tensor  # (B, N, 3)
    target: Tensor  # (B, N, 3)
    normals: Tensor  # (B, N, 3) of the target, unit length
    weights: Tensor  # (B, N) positive
    T_target_source: Tensor  # (B, 4, 4)


def bumpy_ellipsoids(batch: int, points: int, noise: float, seed: int, dtype: torch.dtype) -> Case:
    """Closed surfaces about as large as the unit sphere, moved within the paper's range, noise on the moved points.

    Drawn in float64, so that a seed means the same clouds in any dtype.
    """
    generator = torch.Generator().manual_seed(seed)
    source, source_normals = _surface(batch, points, generator)
    # The paper's range: each Euler angle in [0, 45] degrees, each component of the translation in [-0.5, 0.5].
    R = roma.euler_to_rotmat("xyz", math.pi / 4 * _uniform(batch, 3, generator=generator))
    T = se3.from_rotation_translation(R, _uniform(batch, 3, generator=generator) - 0.5)
    target = se3.apply(T, source) + noise * _normal(batch, points, 3, generator=generator)
    weights = 0.5 + _uniform(batch, points, generator=generator)
    return Case(*(tensor.to(dtype) for tensor in (source, target, se3.rotate(T, source_normals), weights, T)))


def _surface(batch: int, points: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Points and unit normals (B, N, 3) of ellipsoids with three waves on them.

    Without the waves they would be special: affine maps, too, take an ellipsoid to itself, and the search starts badly.
    """
    directions = normalize(_normal(batch, points, 3, generator=generator), dim=-1)
    frequencies = 2 * _normal(batch, 3, 3, generator=generator)
    phases = directions @ frequencies.mT + 6 * _uniform(batch, 1, 3, generator=generator)
    radii = 1 + 0.1 * phases.sin().sum(-1, keepdim=True)
    slopes = 0.1 * phases.cos() @ frequencies  # the gradient of the radius by the direction
    slopes = slopes - (slopes * directions).sum(-1, keepdim=True) * directions
    axes = torch.tensor([1.0, 0.75, 0.5], dtype=torch.float64)
    return axes * radii * directions, normalize((radii * directions - slopes) / axes, dim=-1)


def plane(case: Case, weighted: bool = True, **options: Any) -> Contestant:
    """The layer, with gradients to source, target, normals and, if weighted, weights."""
    inputs = _leaves(*case[: 4 if weighted else 3])
    return Contestant(lambda: (point_to_plane(*inputs, **options).T_target_source,), inputs, _upstream(case, (4, 4)))


def procrustes(case: Case, solve: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]) -> Contestant:
    """A point-to-point solver (source, target, weights) -> (R, t), with gradients to all three."""
    inputs = _leaves(case.source, case.target, case.weights)
    return Contestant(lambda: solve(*inputs), inputs, _upstream(case, (3, 3), (3,)))


def kabsch(source: Tensor, target: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """(B, 3, 3) rotations and (B, 3) translations by one batched SVD, differentiated by torch."""
    return _procrustes(source, target, weights, _nearest_rotations)


def kabsch_one_by_one(source: Tensor, target: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The same with one SVD at a time in a Python loop, as in the published heads of DCP and PRNet."""
    return _procrustes(source, target, weights, lambda covariance: torch.stack([_one(matrix) for matrix in covariance]))


def registration_by_roma(source: Tensor, target: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The same by roma."""
    return roma.rigid_points_registration(source, target, weights)


def _procrustes(
    source: Tensor, target: Tensor, weights: Tensor, rotations: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    share = (weights / weights.sum(-1, keepdim=True))[..., None]  # (B, N, 1)
    source_center, target_center = (share * source).sum(1, keepdim=True), (share * target).sum(1, keepdim=True)
    covariance = (target - target_center).mT @ (share * (source - source_center))  # (B, 3, 3) sum of w y x^T
    R = rotations(covariance)
    return R, (target_center - source_center @ R.mT).squeeze(1)


def _nearest_rotations(covariance: Tensor) -> Tensor:
    U, _, Vh = torch.linalg.svd(covariance)
    flips = torch.ones_like(covariance[..., 0])
    flips[..., 2] = torch.linalg.det((U @ Vh).detach()).sign()  # a reflection gives up its weakest direction
    return U @ (flips[..., None] * Vh)


def _one(covariance: Tensor) -> Tensor:
    U, _, Vh = torch.linalg.svd(covariance)
    R = U @ Vh
    if torch.linalg.det(R) < 0:
        R = U @ (torch.tensor([1.0, 1.0, -1.0]).to(Vh)[:, None] * Vh)
    return R


def _leaves(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(tensor.detach().clone().requires_grad_() for tensor in tensors)


def _upstream(case: Case, *shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    """One random gradient for each output, the same for all who have outputs of that shape."""
    generator = torch.Generator().manual_seed(0)
    batch = len(case.source)
    return tuple(torch.randn(batch, *shape, generator=generator).to(case.source.dtype) for shape in shapes)


def _uniform(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def _normal(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)
