"""The six directions in which a pose can move, and the energy's derivatives along them.

Poses are local (B, 3, 4), as in `quadratic`. A `Chart` says what the six numbers (a, b) of a step mean:

    R <- turn(a) R,      t <- t + (turn(a) - I) arm + b,

with the arm from the point that rotations turn about to the moved source centroid. Any such point spans the same
tangent space, and any turn(a) that agrees with exp(a) to the second order has the same derivatives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from p2plane.geometry import so3
from p2plane.solve.inputs import holds
from p2plane.solve.quadratic import Frame, Quadratic


def _jacobian_map(columns: int) -> tuple[Tensor, Tensor]:
    """(3 columns, 72) and (72,): the rows ``K_k [R | arm]`` are linear in ``[R | arm]``, the rows of t are constant."""
    lever = torch.eye(3 * columns, dtype=torch.float64).view(-1, 3, columns)
    turns = so3.hat(torch.eye(3, dtype=torch.float64)) @ torch.nn.functional.pad(lever, (0, 4 - columns))[:, None]
    by_lever = torch.nn.functional.pad(turns.flatten(2), (0, 0, 0, 3)).flatten(1)
    shifts = torch.nn.functional.pad(torch.eye(12, dtype=torch.float64)[3::4], (0, 0, 3, 0)).flatten()
    return by_lever, shifts


def _curvature_map() -> Tensor:
    """(9, 36): from ``P = [R | arm] S^T`` to ``sym(P) - trace(P) I`` in the rotation's corner of a 6 x 6 matrix."""
    product = torch.eye(9, dtype=torch.float64).view(9, 3, 3)
    trace = product.diagonal(dim1=1, dim2=2).sum(-1)[:, None, None]
    curvature = (product + product.mT) / 2 - trace * torch.eye(3, dtype=torch.float64)
    return torch.nn.functional.pad(curvature, (0, 3, 0, 3)).flatten(1)


_GENERATORS = so3.hat(torch.eye(3, dtype=torch.float64)).flatten(1)  # (3, 9)
_JACOBIAN_MAPS = {3: _jacobian_map(3), 4: _jacobian_map(4)}  # without and with an arm
_CURVATURE_OF_PRODUCT = _curvature_map()


@dataclass(frozen=True)
class Chart:
    """The point that rotations turn about, how they turn, and which of the six directions are free.

    With neither pivot, rotations turn about the moved source centroid, where they hardly mix with translations.
    """

    source_pivot: Tensor | None = None  # (B, 3, 1) turn about where the pose takes this source point
    target_pivot: Tensor | None = None  # (B, 3, 1) turn about this target point
    rodrigues: bool = False  # turn(a) is exp(a), else Cayley's map
    free: tuple[int, ...] = (0, 1, 2, 3, 4, 5)

    def lever(self, T: Tensor) -> Tensor:
        """(B, 3, 4) ``[R | arm]``, or (B, 3, 3) R alone where the arm is zero."""
        R = T[:, :, :3]
        if self.target_pivot is not None:
            return torch.cat([R, T[:, :, 3:] - self.target_pivot], dim=-1)
        if self.source_pivot is not None:
            return torch.cat([R, -torch.bmm(R, self.source_pivot)], dim=-1)
        return R

    def jacobian(self, lever: Tensor) -> Tensor:
        """(B, F, 12) the free tangent directions, each as the change of the twelve entries of T."""
        by_lever, constant = _JACOBIAN_MAPS[lever.shape[-1]]
        flat = torch.addmm(constant.to(lever.device), lever.flatten(1), by_lever.to(lever.device))
        return self.select(flat.view(-1, 6, 12), 1)

    def select(self, tensor: Tensor, dim: int) -> Tensor:
        """The free ones of six."""
        return (
            tensor
            if len(self.free) == 6
            else tensor.index_select(dim, torch.tensor(self.free, dtype=torch.int64, device=tensor.device))
        )

    def retract(self, T: Tensor, step: Tensor) -> Tensor:
        """(B, 3, 4) poses after the steps (B, F)."""
        if len(self.free) < 6:
            step = step @ self.select(torch.eye(6, dtype=T.dtype, device=T.device), 0)
        lever = self.lever(T)
        turned = (_rodrigues_turn if self.rodrigues else _cayley_turn)(step[:, :3], lever)
        t = T[:, :, 3:] + step[:, 3:, None]
        if lever.shape[-1] == 3:
            return torch.cat([turned, t], dim=-1)
        return torch.cat([turned[:, :, :3], t + turned[:, :, 3:] - lever[:, :, 3:]], dim=-1)


def callers_chart(frame: Frame) -> Chart:
    """The chart of the library's conventions: left steps about the origin of the caller's target frame."""
    return Chart(target_pivot=-frame.target_center / frame.scale, rodrigues=True)


def _rodrigues_turn(a: Tensor, lever: Tensor) -> Tensor:
    """(B, 3, C) ``exp(a) lever``; like `so3.exp`, in fewer operations, as no derivative is taken of it."""
    skew = (a @ _GENERATORS.to(a.device)).view(-1, 3, 3)
    once = torch.bmm(skew, lever)
    angle = torch.linalg.vector_norm(a, dim=-1)[:, None, None]
    first, half = torch.sinc(angle / math.pi), torch.sinc(angle / (2 * math.pi))
    # sin(x) / x, and (1 - cos(x)) / x^2 = (sin(x / 2) / (x / 2))^2 / 2
    return torch.addcmul(torch.addcmul(lever, first, once), half * half, torch.bmm(skew, once), value=0.5)


def _cayley_turn(a: Tensor, lever: Tensor) -> Tensor:
    """(B, 3, C) ``(I - K / 2)^-1 (I + K / 2) lever``, K the cross product with a (B, 3): exp(a) to the second order.

    The angle is ``2 atan(|a| / 2)``, less than pi however long a is, which suits the steps of a search.
    """
    skew = (a @ _GENERATORS.to(a.device)).view(-1, 3, 3)
    once = torch.bmm(skew, lever)
    denominator = 1 + 0.25 * torch.linalg.vecdot(a, a)
    return torch.addcdiv(lever, torch.baddbmm(once, skew, once, alpha=0.5), denominator[:, None, None])


class Derivatives(NamedTuple):
    """Half the derivatives of an energy along a chart."""

    jacobian: Tensor  # (B, F, 12) J
    slope: Tensor  # (B, F, 1)
    gauss_newton: Tensor  # (B, F, F) J H J^T
    hessian: Tensor  # (B, F, F) with the curvature of SO(3)


def derivatives(quadratic: Quadratic, chart: Chart, T: Tensor, gradient: Tensor) -> Derivatives:
    """The derivatives along the chart at T.

    The curvature is ``<S, (K_j K_k + K_k K_j) [R | arm] / 2>`` with S the half gradient by T; as
    ``K_j K_k = e_k e_j^T - [j = k] I`` that is the symmetric part of ``[R | arm] S^T`` minus its trace.

    Args:
        gradient: (B, 3, 4) half the gradient by T, from `Quadratic.value_and_gradient`.
    """
    lever = chart.lever(T)
    jacobian = chart.jacobian(lever)
    slope = torch.bmm(jacobian, gradient.reshape(-1, 12, 1))
    gauss_newton = torch.bmm(torch.bmm(jacobian, quadratic.matrix[:, :12, :12]), jacobian.mT)
    product = torch.bmm(lever, gradient[:, :, : lever.shape[-1]].mT)
    curvature = (product.view(-1, 9) @ _CURVATURE_OF_PRODUCT.to(T.device)).view(-1, 6, 6)
    return Derivatives(jacobian, slope, gauss_newton, gauss_newton + chart.select(chart.select(curvature, 1), 2))


def determined_projector(gauss_newton: Tensor, undetermined_below: float) -> Tensor | None:
    """(B, F, F) projector onto the directions that the data determines; None when it is certainly all of them.

    Those are the eigenvectors of ``J H J^T`` (mean, local coordinates) with an eigenvalue of at least the threshold.
    """
    if holds(certainly_above(undetermined_below, gauss_newton, *torch.linalg.cholesky_ex(gauss_newton.detach())).all()):
        return None
    return eigenspace_above(undetermined_below, gauss_newton)


def eigenspace_above(threshold: float, matrix: Tensor) -> Tensor:
    """(B, F, F) projector onto the eigenvectors of a symmetric matrix with eigenvalues of at least the threshold."""
    # gradient stops here: which directions count is a choice
    eigenvalues, vectors = torch.linalg.eigh(matrix.detach())
    return (vectors * (eigenvalues >= threshold)[:, None]) @ vectors.mT


def certainly_above(threshold: float, matrix: Tensor, factor: Tensor, info: Tensor) -> Tensor:
    """(B,) true only where every eigenvalue of a matrix, given with its Cholesky factor, is above the threshold.

    Without an eigenvalue decomposition: the smallest is at least ``det(A) ((n - 1) / trace(A))^(n - 1)``.
    """
    others = matrix.shape[-1] - 1
    matrix, factor = matrix.detach(), factor.detach()
    trace = matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
    root_of_determinant = factor.diagonal(dim1=-2, dim2=-1).prod(-1)
    return (info == 0) & (root_of_determinant * (others / trace) ** (others / 2) > threshold**0.5)


def restricted(matrix: Tensor, projector: Tensor | None) -> Tensor:
    """The matrix on the projector's range, and the identity on the rest."""
    if projector is None:
        return matrix
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    return projector @ matrix @ projector + identity - projector


def rank(projector: Tensor) -> Tensor:
    """(B,) dimension of a projector's range."""
    return projector.diagonal(dim1=1, dim2=2).sum(-1).round().long()
