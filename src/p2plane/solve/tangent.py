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
from torch.nn.functional import pad

from p2plane.geometry import so3
from p2plane.solve.inputs import holds
from p2plane.solve.quadratic import Frame, Quadratic


def _jacobian_map(with_arm: bool) -> tuple[Tensor, Tensor]:
    """(12, 72) and (72,): the rows ``K_k [R | arm]`` are linear in ``[R | arm]``, the rows of t are constant."""
    lever = torch.eye(12, dtype=torch.float64).view(12, 3, 4)
    lever[:, :, 3] *= with_arm
    turns = so3.hat(torch.eye(3, dtype=torch.float64)) @ lever[:, None]
    by_lever = pad(turns.flatten(2), (0, 0, 0, 3)).flatten(1)
    shifts = pad(torch.eye(12, dtype=torch.float64)[3::4], (0, 0, 3, 0)).flatten()
    return by_lever, shifts


def _row_map(with_arm: bool) -> tuple[Tensor, Tensor]:
    """(12 or 24, 169) and (169,): thirteen rows of thirteen entries each, linear in ``[R | arm]`` and T.

    Nine of them, j k, have the row j of ``[R | arm]`` in place of the row k of T; three are t's; the last is (T, 1).
    """
    lever = torch.eye(12, dtype=torch.float64).view(12, 3, 4)
    pose = torch.eye(12, dtype=torch.float64)
    lever[:, :, 3] *= with_arm
    one_row = torch.einsum("zjc,kl->zjklc", lever, torch.eye(3, dtype=torch.float64)).reshape(12, 9, 12)
    by_lever = pad(one_row, (0, 1, 0, 4)).flatten(1)
    by_pose = pad(pose[:, None], (0, 1, 12, 0)).flatten(1)
    constant = torch.zeros(13, 13, dtype=torch.float64)
    constant[9:12, 3:12:4] = torch.eye(3, dtype=torch.float64)
    constant[12, 12] = 1
    return torch.cat([by_lever, by_pose]) if with_arm else by_lever + by_pose, constant.flatten()


def _derivative_map() -> Tensor:
    """(169, 79): from the products of those rows to the Hessian, ``J H J^T``, the slope and the value.

    The curvature of SO(3) is the symmetric part of ``P = [R | arm] S^T`` minus its trace, S the half gradient by T.
    """
    product = torch.eye(169, dtype=torch.float64).view(169, 13, 13)
    turns = so3.hat(torch.eye(3, dtype=torch.float64)).mT.flatten(1)  # K_k as a sum of rows j k
    tangent = torch.block_diag(turns, torch.eye(3, dtype=torch.float64))  # (6, 12)
    gauss_newton = tangent @ product[:, :12, :12] @ tangent.T
    slope, P = product[:, :12, 12] @ tangent.T, product[:, :9, 12].view(169, 3, 3)
    trace = P.diagonal(dim1=1, dim2=2).sum(-1)[:, None, None]
    curvature = (P + P.mT) / 2 - trace * torch.eye(3, dtype=torch.float64)
    hessian = gauss_newton + pad(curvature, (0, 3, 0, 3))
    return torch.cat([hessian.flatten(1), gauss_newton.flatten(1), slope, product[:, 12, 12:]], dim=1)


_GENERATORS = so3.hat(torch.eye(3, dtype=torch.float64)).flatten(1)  # (3, 9)
_JACOBIAN_MAPS = {with_arm: _jacobian_map(with_arm) for with_arm in (False, True)}
_ROW_MAPS = {with_arm: _row_map(with_arm) for with_arm in (False, True)}
_DERIVATIVES_OF_PRODUCTS = _derivative_map()
_ONE = torch.ones((), dtype=torch.float64)


@dataclass(frozen=True)
class Chart:
    """The point that rotations turn about, how they turn, and which of the six directions are free.

    With neither pivot, rotations turn about the moved source centroid, where they hardly mix with translations.
    """

    source_pivot: Tensor | None = None  # (B, 3, 1) turn about where the pose takes this source point
    target_pivot: Tensor | None = None  # (B, 3, 1) turn about this target point
    rodrigues: bool = False  # turn(a) is exp(a), else Cayley's map
    free: tuple[int, ...] = (0, 1, 2, 3, 4, 5)

    @property
    def has_arm(self) -> bool:
        """Whether rotations turn about another point than the moved source centroid."""
        return self.source_pivot is not None or self.target_pivot is not None

    def lever(self, T: Tensor) -> Tensor:
        """(B, 3, 4) ``[R | arm]``; T itself, whose t then does not count, where there is no arm."""
        if self.target_pivot is not None:
            return torch.cat([T[:, :, :3], T[:, :, 3:] - self.target_pivot], dim=-1)
        if self.source_pivot is not None:
            return torch.cat([T[:, :, :3], -torch.bmm(T[:, :, :3], self.source_pivot)], dim=-1)
        return T

    def arm(self, T: Tensor) -> Tensor:
        """(B, 3, 1) from the point that rotations turn about to the moved source centroid."""
        return self.lever(T)[:, :, 3:] if self.has_arm else torch.zeros_like(T[:, :, 3:])

    def jacobian(self, T: Tensor) -> Tensor:
        """(B, F, 12) the free tangent directions at T, each as the change of its twelve entries."""
        by_lever, constant = (each.to(T.device) for each in _JACOBIAN_MAPS[self.has_arm])
        return self.select(torch.addmm(constant, self.lever(T).flatten(1), by_lever).view(-1, 6, 12), 1)

    def rows(self, T: Tensor) -> Tensor:
        """(B, 13, 13) what the derivatives at T are made of, see `_row_map`."""
        by_entries, constant = (each.to(T.device) for each in _ROW_MAPS[self.has_arm])
        entries = torch.cat([self.lever(T), T], dim=1) if self.has_arm else T
        return torch.addmm(constant, entries.flatten(1), by_entries).view(-1, 13, 13)

    def select(self, tensor: Tensor, dim: int) -> Tensor:
        """The free ones of six."""
        if len(self.free) == 6:
            return tensor
        return tensor.index_select(dim, torch.tensor(self.free, dtype=torch.int64, device=tensor.device))

    def retract(self, T: Tensor, step: Tensor) -> Tensor:
        """(B, 3, 4) poses after the steps (B, F)."""
        if len(self.free) < 6:
            step = step @ self.select(torch.eye(6, dtype=T.dtype, device=T.device), 0)
        lever = self.lever(T) if self.has_arm else T[:, :, :3]
        turned = (_rodrigues_turn if self.rodrigues else _cayley_turn)(step[:, :3], lever)
        t = T[:, :, 3:] + step[:, 3:, None]
        if not self.has_arm:
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
    denominator = torch.add(_ONE.to(a.device), torch.linalg.vecdot(a, a).view(-1, 1, 1), alpha=0.25)
    return torch.addcdiv(lever, torch.baddbmm(once, skew, once, alpha=0.5), denominator)


class Derivatives(NamedTuple):
    """An energy and half its derivatives along a chart."""

    value: Tensor  # (B,)
    slope: Tensor  # (B, F, 1)
    gauss_newton: Tensor  # (B, F, F) J H J^T
    hessian: Tensor  # (B, F, F) with the curvature of SO(3)


def derivatives(quadratic: Quadratic, chart: Chart, T: Tensor) -> Derivatives:
    """The derivatives along the chart at T: all of them are sums of the products of thirteen rows."""
    rows = chart.rows(T)
    products = torch.bmm(torch.bmm(rows, quadratic.matrix), rows.mT)
    parts = products.view(-1, 169) @ _DERIVATIVES_OF_PRODUCTS.to(T.device)
    hessian, gauss_newton, slope, value = parts.split((36, 36, 6, 1), dim=1)
    hessian, gauss_newton, slope = hessian.view(-1, 6, 6), gauss_newton.view(-1, 6, 6), slope[:, :, None]
    if len(chart.free) < 6:
        hessian, gauss_newton = (chart.select(chart.select(each, 1), 2) for each in (hessian, gauss_newton))
        slope = chart.select(slope, 1)
    return Derivatives(value[:, 0], slope, gauss_newton, hessian)


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
