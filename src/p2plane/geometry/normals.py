"""Normals and covariances of surfaces by local principal component analysis."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from p2plane.geometry.neighbors import NeighborIndex, Neighbors

# A neighbourhood whose two smaller variances differ by less than this part of the largest has no normal: it is a line
# not wider than a hundredth of its length, or round about it.
_MIN_GAP = 1e-4
# A symmetric matrix is kept as (6,), and read as (3, 3) by these indices. In this order each entry follows from the one
# before by turning x, y, z into y, z, x, so that three of them can be computed at once with `roll`.
_MATRIX = torch.tensor([[0, 3, 5], [3, 1, 4], [5, 4, 2]])  # of xx, yy, zz, xy, yz, zx


class LocalGeometry(NamedTuple):
    """What the neighbourhood of each point looks like."""

    normals: Tensor  # (..., N, 3) of unit length, zero where they are not reliable
    covariances: Tensor  # (..., N, 3, 3) of the neighbours about their mean, zero where a point is absent
    eigenvalues: Tensor  # (..., N, 3) of the covariances, ascending
    reliable: Tensor  # (..., N) bool, whether the neighbours determine a normal


def estimate_normals(
    points: Tensor,
    *,
    k: int = 20,
    radius: float | None = None,
    viewpoint: Tensor | None = None,
    mask: Tensor | None = None,
) -> LocalGeometry:
    """Normals of the planes that fit best to the k nearest points, each point being one of its own neighbours.

    A point has no normal, and ``reliable`` is false, where it has fewer than three neighbours, where they coincide, lie
    on a line or spread evenly about one, as far as their rounding can tell. Its normal is zero then: point-to-plane
    distances do not see it, and its `plane_covariances` are those of a point.

    Args:
        points: (..., N, 3).
        k: how many neighbours, the point included; all of them where a cloud has fewer.
        radius: beyond which no neighbour counts; with one, isolated points are found out.
        viewpoint: (3,) or (..., 3), where the normals should point to; without one their signs are arbitrary.
        mask: (..., N) bool, true where a point is present; absent points may hold NaN and have no normal.

    Gradient: none; it would divide by differences of eigenvalues.
    """
    _refuse(points, k, viewpoint)
    points = points.detach()  # gradient stops here: neighbours are discrete, and eigenvectors have poles
    if points.numel() == 0:
        return LocalGeometry(points, points[..., None] * points[..., None, :], points, points[..., 0].bool())
    index = NeighborIndex(points, mask=mask)
    points = index.points  # zero where absent
    k = min(k, points.shape[-2])
    neighbors = index.knn(points, k, mask=mask) if radius is None else index.within(points, radius, k, mask=mask)
    entries, counts = _covariances(points, neighbors)
    eigenvalues, normals = _principal(entries)
    reliable = (counts >= 3) & _determined(eigenvalues, points.reshape(-1, 3))
    normals = (normals * reliable[:, None]).to(points.dtype).view(points.shape)
    if viewpoint is not None:
        normals = orient(normals, points, viewpoint)
    covariances = entries.to(points.dtype).mT[:, _MATRIX.to(points.device)]  # (P, 3, 3)
    return LocalGeometry(
        normals,
        covariances.view(*points.shape, 3),
        eigenvalues.to(points.dtype).view(points.shape),
        reliable.view(points.shape[:-1]),
    )


def orient(normals: Tensor, points: Tensor, viewpoint: Tensor) -> Tensor:
    """Normals with the signs that make them point to where they are seen from.

    Args:
        normals: (..., N, 3).
        points: (..., N, 3).
        viewpoint: (3,) or (..., 3).

    Returns:
        (..., N, 3).

    Gradient: normals.
    """
    towards = viewpoint.to(points)[..., None, :] - points
    return normals.where((normals * towards).sum(-1, keepdim=True) >= 0, -normals)


def plane_covariances(normals: Tensor, epsilon: float = 1e-3) -> Tensor:
    """Covariances of points that are known well along their normals and badly across them, as generalised ICP has them.

    ``R diag(epsilon, 1, 1) R^T`` with the normal in the first column of R, that is ``I - (1 - epsilon) n n^T``.

    Args:
        normals: (..., N, 3) of unit length; zero gives the identity, the covariance of a point without a surface.
        epsilon: the variance along the normal, in (0, 1].

    Returns:
        (..., N, 3, 3).

    Gradient: normals.

    Reference: Segal, Haehnel, Thrun, "Generalized-ICP", RSS 2009, section III.B.
    """
    if normals.shape[-1:] != (3,):
        raise ValueError(f"normals must have shape (..., N, 3), got {tuple(normals.shape)}")
    if not 0 < epsilon <= 1:
        raise ValueError(f"epsilon must be in (0, 1], got {epsilon!r}")
    outer = normals[..., :, None] * normals[..., None, :]
    return torch.eye(3, dtype=normals.dtype, device=normals.device) - (1 - epsilon) * outer


def _covariances(points: Tensor, neighbors: Neighbors) -> tuple[Tensor, Tensor]:
    """(6, P) entries of the covariances in float64, and (P,) how many neighbours they are of.

    All differences are taken from the point itself, so that nothing is lost far from the origin. Where a neighbour is
    missing, `Neighbors` repeats the nearest one, which is the point itself: it adds nothing to the sums.
    """
    count, k = points.shape[-2], neighbors.indices.shape[-1]
    coordinates = points.reshape(-1, 3).double().mT.contiguous()  # (3, P)
    indices = neighbors.indices.reshape(-1, count, k)
    if len(indices) > 1:  # rows of all clouds under each other
        indices = indices + count * torch.arange(len(indices), device=indices.device)[:, None, None]
    counts = neighbors.counts.reshape(-1)
    divisors = torch.where(counts > 0, counts.double(), float("inf"))  # absent points sum up to zero
    rows = max(1, 2**18 // k)  # of a block that stays in the cache
    parts = zip(indices.view(-1, k).split(rows), coordinates.split(rows, -1), divisors.split(rows), strict=True)
    return torch.cat([_block_covariances(coordinates, *part) for part in parts], dim=-1), counts


def _block_covariances(coordinates: Tensor, indices: Tensor, centers: Tensor, divisors: Tensor) -> Tensor:
    """(6, P) entries of some of the covariances."""
    flat = indices.reshape(-1)
    x, y, z = (
        axis.index_select(0, flat).view(indices.shape).sub_(center[:, None])
        for axis, center in zip(coordinates, centers, strict=True)
    )  # (P, k) each
    means = torch.stack([axis.sum(-1) for axis in (x, y, z)]) / divisors  # (3, P)
    moments = torch.stack([(a * b).sum(-1) for a, b in ((x, x), (y, y), (z, z), (x, y), (y, z), (z, x))]) / divisors
    return moments - torch.cat([means.square(), means * means.roll(-1, 0)])


def _determined(eigenvalues: Tensor, points: Tensor) -> Tensor:
    """(P,) bool, whether the smallest eigenvalue stands apart, and the next is more than rounding of the points."""
    smallest, middle, largest = eigenvalues.unbind(-1)
    rounding = torch.finfo(points.dtype).eps * points.abs().amax(-1).double()
    return (middle - smallest > _MIN_GAP * largest) & (middle > rounding.square())


def _principal(entries: Tensor) -> tuple[Tensor, Tensor]:
    """(P, 3) ascending eigenvalues of symmetric matrices (6, P), and (P, 3) unit eigenvectors of the smallest.

    The eigenvalues solve the characteristic cubic by trigonometry. The adjugate of ``A - a I`` is a multiple of
    ``n n^T`` where a is an eigenvalue and n its eigenvector, so that its longest column gives n. This needs about an
    eighth of the time of torch.linalg.eigh, and loses accuracy only where the two smaller eigenvalues meet.
    """
    trace = entries[:3].sum(0)
    diagonal, mixed = (entries / trace.where(trace > 0, 1)).split(3)  # xx, yy, zz and xy, yz, zx
    mean = diagonal.mean(0)
    deviations = diagonal - mean
    spread = (deviations.square().sum(0) / 6 + mixed.square().sum(0) / 3).sqrt()
    products = deviations[0] * deviations[1] * deviations[2] + 2 * mixed[0] * mixed[1] * mixed[2]
    determinant = products - (deviations * mixed.roll(-1, 0).square()).sum(0)
    cosine = determinant / (2 * spread * spread * spread).where(spread > 0, 1)
    angle = cosine.clamp_(-1, 1).acos_() / 3
    largest = mean + 2 * spread * angle.cos()
    smallest = mean + 2 * spread * (angle + 2 * math.pi / 3).cos()
    eigenvalues = torch.stack([smallest, 3 * mean - smallest - largest, largest], dim=-1)
    return eigenvalues.clamp_(min=0) * trace[:, None], _null_vectors(diagonal - smallest, mixed)


def _null_vectors(diagonal: Tensor, mixed: Tensor) -> Tensor:
    """(P, 3) unit vectors that symmetric matrices of rank two take to zero."""
    next_mixed, last_mixed, next_diagonal, last_diagonal = (
        entries.roll(-turns, 0) for entries in (mixed, diagonal) for turns in (1, 2)
    )
    minors = next_diagonal * last_diagonal - next_mixed.square()  # yy zz - yz yz, ...
    adjugate = torch.cat([minors, next_mixed * last_mixed - mixed * last_diagonal])  # yz zx - xy zz, ...
    x, y, z = adjugate[_MATRIX.to(minors.device)]  # its columns, (3, P) each
    longest = torch.where(minors[0] > minors[1], x, y)
    longest = torch.where(torch.maximum(minors[0], minors[1]) > minors[2], longest, z)
    squares = longest.square().sum(0)
    return (longest / squares.where(squares > 0, 1).sqrt()).mT


def _refuse(points: Tensor, k: int, viewpoint: Tensor | None) -> None:
    if points.ndim < 2 or points.shape[-1] != 3:
        raise ValueError(f"points must have shape (..., N, 3), got {tuple(points.shape)}")
    if not isinstance(k, int) or k < 3:
        raise ValueError(f"k must be an integer of at least 3, got {k!r}")
    if viewpoint is not None and viewpoint.shape not in ((3,), (*points.shape[:-2], 3)):
        expected = "(3,)" if points.ndim == 2 else f"(3,) or {(*points.shape[:-2], 3)}"
        raise ValueError(f"viewpoint must have shape {expected}, got {tuple(viewpoint.shape)}")
