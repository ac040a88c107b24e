"""The linear algebra of the search in sums and products alone, for graphs that know no factorization (ONNX).

Inside `basic_operations` the search takes these; everywhere else it takes LAPACK's, which are faster. The results agree
to rounding. Nothing here branches on values, so that a tracer can follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from p2plane.geometry import so3

EIGHTH_POWERS = 10  # of a matrix, towards the eigenvector of its largest eigenvalue: its power is 2^30 then
SIGN_STEPS = (
    48  # each brings an eigenvalue 1.5 times nearer to one: from 1e-7 of the largest on, and then quadratically
)

_is_on = False


@contextmanager
def basic_operations() -> Iterator[None]:
    """A context in which the search uses this file. It holds for all threads: the answers are the same anyway."""
    global _is_on
    before, _is_on = _is_on, True
    try:
        yield
    finally:
        _is_on = before


def is_basic() -> bool:
    """Whether sums and products are all there is."""
    return _is_on


def is_traced() -> bool:
    """Whether a graph of sums and products is being made, in which loops must be operations."""
    return _is_on and torch.compiler.is_compiling()


def factored(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """(B, F, F) what `solved` needs of symmetric matrices, and (B,) zero where they are positive definite."""
    return inverse(matrix) if _is_on else torch.linalg.cholesky_ex(matrix)


def solved(right: Tensor, factor: Tensor) -> Tensor:
    """(B, F, K) ``matrix^-1 right``, by what `factored` made of the matrix."""
    return factor @ right if _is_on else torch.cholesky_solve(right, factor)


def project(matrix: Tensor) -> Tensor:
    """(B, 3, 3) the rotation nearest to a matrix."""
    return nearest_rotation(matrix) if _is_on else so3.project(matrix)


def inverse(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """(B, F, F) inverse of symmetric matrices, and (B,) zero where they are positive definite, as only those count.

    One direction after the other is swept: its pivot is what Cholesky's method takes the root of.
    """
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    failed = torch.zeros_like(matrix[:, 0, 0], dtype=torch.bool)
    for k in range(matrix.shape[-1]):
        axis = identity[:, k : k + 1]
        others = 1 - axis
        pivot = matrix[:, k : k + 1, k : k + 1]
        is_positive = pivot > 0
        failed = failed | ~is_positive[:, 0, 0]
        column = matrix[:, :, k : k + 1] * others - axis
        swept = column @ (column / torch.where(is_positive, pivot, 1.0)).mT
        matrix = matrix * (others * others.mT) - swept
    return -matrix, failed.long()


def projector_above(threshold: float, matrix: Tensor) -> Tensor:
    """(B, F, F) projector onto the eigenvectors of symmetric matrices with eigenvalues above the threshold.

    Half of one plus the matrix's sign, by Newton and Schulz: ``X <- X (3 - X^2) / 2``.
    """
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    lowered = matrix - threshold * identity
    size = lowered.square().sum((1, 2), keepdim=True).sqrt()
    sign = lowered / torch.where(size > 0, size, 1.0)
    for _ in range(SIGN_STEPS):
        sign = 1.5 * sign - 0.5 * (sign @ sign @ sign)
    return (identity + sign) / 2


def leading_direction(matrix: Tensor) -> Tensor:
    """(..., F) unit eigenvector of the largest eigenvalue of symmetric positive semi-definite matrices (..., F, F)."""
    power = matrix
    for _ in range(EIGHTH_POWERS):
        trace = power.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
        power = power / torch.where(trace > 0, trace, 1.0)
        power = torch.linalg.matrix_power(power, 8)
    # Now v v^T up to a factor: the column with the longest diagonal entry is the best to read v from.
    best = power.diagonal(dim1=-2, dim2=-1).argmax(-1)
    column = power.gather(-1, best[..., None, None].expand(*power.shape[:-1], 1)).squeeze(-1)
    length = column.square().sum(-1, keepdim=True).sqrt()
    return column / torch.where(length > 0, length, 1.0)


def nearest_rotation(matrix: Tensor) -> Tensor:
    """(B, 3, 3) the rotation nearest to a matrix, as `so3.project`: the quaternion q of the largest ``q^T K q``."""
    (a, b, c), (d, e, f), (g, h, i) = (row.unbind(-1) for row in matrix.unbind(-2))
    rows = [
        [a + e + i, h - f, c - g, d - b],
        [h - f, a - e - i, b + d, c + g],
        [c - g, b + d, e - a - i, f + h],
        [d - b, c + g, f + h, i - a - e],
    ]
    form = torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)  # (B, 4, 4)
    size = form.square().sum((-2, -1), keepdim=True).sqrt()
    identity = torch.eye(4, dtype=form.dtype, device=form.device)
    return _rotation(leading_direction(form + torch.where(size > 0, size, 1.0) * identity))


def _rotation(quaternion: Tensor) -> Tensor:
    """(B, 3, 3) of unit quaternions (B, 4), the real part first."""
    w, x, y, z = quaternion.unbind(-1)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)
