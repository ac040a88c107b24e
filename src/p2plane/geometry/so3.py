"""Rotations of space: (..., 3, 3) matrices that act on columns, and rotation vectors (..., 3) in radians."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from p2plane.geometry.quaternions import quaternion_of, rotation_of

# K_k, the matrices of e_k x, as rows of nine entries.
_GENERATORS = torch.tensor(
    [
        [0, 0, 0, 0, 0, -1, 0, 1, 0],
        [0, 0, 1, 0, 0, 0, -1, 0, 0],
        [0, -1, 0, 1, 0, 0, 0, 0, 0],
    ],
    dtype=torch.float64,
)


def hat(omega: Tensor) -> Tensor:
    """Matrix of the cross product: ``hat(omega) @ p == cross(omega, p)``.

    Args:
        omega: (..., 3) vectors.

    Returns:
        (..., 3, 3) skew-symmetric matrices.

    Gradient: omega.
    """
    return (omega @ _GENERATORS.to(omega)).unflatten(-1, (3, 3))


def exp(omega: Tensor) -> Tensor:
    """Rotation by the angle ``|omega|`` about the axis ``omega`` (Rodrigues).

    roma's conversion stops at the first order below 1e-6 rad, which loses the curvature that second derivatives at
    zero need; this one goes over to more terms of the series.

    Args:
        omega: (..., 3) rotation vectors in radians.

    Returns:
        (..., 3, 3) rotations.

    Gradient: omega, everywhere, to second order at zero as well.
    """
    squared = (omega * omega).sum(-1)[..., None, None]
    small = squared < 1e-4  # the series is exact to rounding there, and so are its derivatives
    angle = torch.where(small, 1.0, squared).sqrt()
    first = torch.where(small, 1 - squared / 6 + squared.square() / 120, angle.sin() / angle)
    second = torch.where(small, 0.5 - squared / 24 + squared.square() / 720, 2 * ((angle / 2).sin() / angle).square())
    skew = hat(omega)
    return torch.eye(3, dtype=omega.dtype, device=omega.device) + first * skew + second * (skew @ skew)


def log(R: Tensor) -> Tensor:
    """Rotation vector of a rotation, ``exp(log(R)) == R``, of length at most pi.

    Args:
        R: (..., 3, 3) rotations.

    Returns:
        (..., 3) rotation vectors in radians.

    Gradient: R, away from the angle pi.
    """
    quaternion = quaternion_of(R)  # axis sin(angle / 2), cos(angle / 2)
    vector, cosine = quaternion[..., :3], quaternion[..., 3:]
    squared = (vector * vector).sum(-1, keepdim=True)
    small = squared < 1e-4  # the series of asin(s) / s is exact to rounding there, and so are its derivatives
    sine = torch.where(small, 1.0, squared).sqrt()
    series = 1 + squared / 6 + 3 * squared.square() / 40 + 5 * squared**3 / 112
    return 2 * torch.where(small, series, torch.atan2(sine, cosine) / sine) * vector


def project(matrix: Tensor) -> Tensor:
    """The rotation nearest to a matrix in the Frobenius norm.

    Args:
        matrix: (..., 3, 3) any finite matrices.

    Returns:
        (..., 3, 3) rotations; one of the nearest where several are.

    Gradient: none that is safe; it would divide by differences of singular values. Use roma.special_procrustes, or
    `p2plane.point_to_point`.
    """
    U, _, Vh = torch.linalg.svd(matrix)
    nearest = U @ Vh
    reflected = torch.linalg.det(nearest)[..., None, None] < 0  # then it gives up its weakest direction
    return nearest - 2 * reflected * (U[..., 2:] * Vh[..., 2:, :])


def random(
    *batch: int,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Tensor:
    """(*batch, 3, 3) rotations, uniform over all of SO(3)."""
    quaternion = torch.randn(*batch, 4, generator=generator, dtype=dtype, device=device)
    return rotation_of(quaternion / quaternion.norm(dim=-1, keepdim=True))


def icosahedral() -> Tensor:
    """(60, 3, 3) the rotations of an icosahedron, float64; none of SO(3) is more than 44.5 degrees from one of them."""
    golden = (1 + 5**0.5) / 2
    signs = list(itertools.product((1.0, -1.0), repeat=3))
    # Quaternions (w, x, y, z) in half units, one of each pair q and -q: four units, eight of halves, and the even
    # permutations of (golden, 1, 1 / golden, 0).
    units = [[2.0 * (i == j) for j in range(4)] for i in range(4)]
    halves = [[1.0, *some] for some in signs]
    even = [order for order in itertools.permutations(range(4)) if _is_even(order)]
    rest = [[(golden, b, c / golden, 0.0)[k] for k in order] for order in even for a, b, c in signs if a > 0]
    return rotation_of(torch.tensor([*units, *halves, *rest], dtype=torch.float64).roll(-1, dims=-1) / 2)


def _is_even(order: Sequence[int]) -> bool:
    return sum(a > b for a, b in itertools.combinations(order, 2)) % 2 == 0


def spread(count: int) -> Tensor:
    """(count, 3, 3) float64 rotations spread evenly over SO(3), always the same (super-Fibonacci spirals)."""
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    place = torch.arange(count, dtype=torch.float64) + 0.5
    inner, outer = (place / count).sqrt(), (1 - place / count).sqrt()
    alpha, beta = 2 * math.pi * place / math.sqrt(2), 2 * math.pi * place / 1.533751168755204288118041
    quaternions = [inner * alpha.sin(), inner * alpha.cos(), outer * beta.sin(), outer * beta.cos()]
    return rotation_of(torch.stack(quaternions, dim=-1))


def about_axis(axis: int, angles: Tensor) -> Tensor:
    """(..., 3, 3) turns by angles (...) about x, y or z (axis 0, 1 or 2)."""
    return exp(angles[..., None] * torch.eye(3, dtype=angles.dtype, device=angles.device)[axis])
