"""The six directions in which a pose can move, and the energy's derivatives along them.

Poses are local (B, 3, 4), as in `quadratic`, and arrays of either kind (see `arrays`). A `Chart` says what the six
numbers (a, b) of a step mean:

    R <- turn(a) R,      t <- t + (turn(a) - I) arm + b,

with the arm from the point that rotations turn about to the moved source centroid. Any such point spans the same
tangent space, and any turn(a) that agrees with exp(a) to the second order has the same derivatives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from p2plane.geometry import so3
from p2plane.solve.arrays import Constant, beside, inverted, is_definite, namespace
from p2plane.solve.basic import is_basic, projector_above
from p2plane.solve.quadratic import Frame


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
    """(169, 79): from the products of those rows to the Hessian, ``J H J^T``, the descent and the value.

    The curvature of SO(3) is the symmetric part of ``P = [R | arm] S^T`` minus its trace, S the half gradient by T.
    """
    turns = so3.hat(torch.eye(3, dtype=torch.float64)).mT.flatten(1)  # K_k as a sum of rows j k
    tangent = torch.block_diag(turns, torch.eye(3, dtype=torch.float64))  # (6, 12)
    gauss_newton = pad(torch.kron(tangent, tangent).view(36, 12, 12), (0, 1, 0, 1)).flatten(1).T  # (169, 36)
    descent = pad(-tangent[:, :, None], (12, 0, 0, 1)).flatten(1).T  # (169, 6)
    product = torch.eye(169, dtype=torch.float64).view(169, 13, 13)
    P = product[:, :9, 12].view(169, 3, 3)
    trace = P.diagonal(dim1=1, dim2=2).sum(-1)[:, None, None]
    curvature = (P + P.mT) / 2 - trace * torch.eye(3, dtype=torch.float64)
    hessian = gauss_newton + pad(curvature, (0, 3, 0, 3)).flatten(1)
    return torch.cat([hessian, gauss_newton, descent, product[:, 12, 12:]], dim=1)


_GENERATORS = Constant.of(so3.hat(torch.eye(3, dtype=torch.float64)).flatten(1))  # (3, 9)
_JACOBIAN_MAPS = {with_arm: tuple(map(Constant.of, _jacobian_map(with_arm))) for with_arm in (False, True)}
_ROW_MAPS = {with_arm: tuple(map(Constant.of, _row_map(with_arm))) for with_arm in (False, True)}
_DERIVATIVES_OF_PRODUCTS = Constant.of(_derivative_map())
_IDENTITY = Constant.of(torch.eye(6, dtype=torch.float64))


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
            return _joined(T[:, :, :3], T[:, :, 3:] - self.target_pivot)
        if self.source_pivot is not None:
            return _joined(T[:, :, :3], -(T[:, :, :3] @ self.source_pivot))
        return T

    def arm(self, T: Tensor) -> Tensor:
        """(B, 3, 1) from the point that rotations turn about to the moved source centroid."""
        return self.lever(T)[:, :, 3:] if self.has_arm else namespace(T).zeros_like(T[:, :, 3:])

    def jacobian(self, T: Tensor) -> Tensor:
        """(B, F, 12) the free tangent directions at T, each as the change of its twelve entries."""
        by_lever, constant = (beside(T, each) for each in _JACOBIAN_MAPS[self.has_arm])
        return self.select((self.lever(T).reshape(-1, 12) @ by_lever + constant).reshape(-1, 6, 12))

    def rows(self, T: Tensor) -> Tensor:
        """(B, 13, 13) what the derivatives at T are made of, see `_row_map`."""
        by_entries, constant = (beside(T, each) for each in _ROW_MAPS[self.has_arm])
        entries = namespace(T).concatenate([self.lever(T), T], 1) if self.has_arm else T
        return (entries.reshape(-1, len(by_entries)) @ by_entries + constant).reshape(-1, 13, 13)

    def select(self, array: Tensor) -> Tensor:
        """(B, F, ...) the free ones of six (B, 6, ...)."""
        return array if len(self.free) == 6 else array[:, list(self.free)]

    def take(self, index: Tensor) -> Chart:
        """The same for some pairs of the batch."""
        source, target = (None if pivot is None else pivot[index] for pivot in (self.source_pivot, self.target_pivot))
        return replace(self, source_pivot=source, target_pivot=target)

    def retract(self, T: Tensor, step: Tensor) -> Tensor:
        """(B, 3, 4) poses after the steps (B, F)."""
        if len(self.free) < 6:
            step = step @ beside(T, _IDENTITY)[list(self.free)]
        a, b = step[:, :3, None], step[:, 3:, None]
        lever = self.lever(T) if self.has_arm else T[:, :, :3]
        turned = (_rodrigues_turn if self.rodrigues else _cayley_turn)(a, lever)
        t = T[:, :, 3:] + b
        if not self.has_arm:
            return _joined(turned, t)
        return _joined(turned[:, :, :3], t + turned[:, :, 3:] - lever[:, :, 3:])


def callers_chart(frame: Frame) -> Chart:
    """The chart of the library's conventions: left steps about the origin of the caller's target frame."""
    return Chart(target_pivot=-frame.target_center / frame.scale, rodrigues=True)


def _joined(R: Tensor, t: Tensor) -> Tensor:
    """(B, 3, 4) of (B, 3, 3) and (B, 3, 1)."""
    return namespace(R).concatenate([R, t], -1)


def skew(a: Tensor) -> Tensor:
    """(B, 3, 3) the cross products with a (B, 3, 1)."""
    return (a[:, :, 0] @ beside(a, _GENERATORS)).reshape(-1, 3, 3)


def _rodrigues_turn(a: Tensor, lever: Tensor) -> Tensor:
    """(B, 3, C) ``exp(a) lever``; like `so3.exp`, in fewer operations, as no derivative is taken of it."""
    sinc, turning = namespace(a).sinc, skew(a)
    once = turning @ lever
    angle = (a * a).sum(1)[:, :, None] ** 0.5
    first, half = sinc(angle / math.pi), sinc(angle / (2 * math.pi))
    # sin(x) / x, and (1 - cos(x)) / x^2 = (sin(x / 2) / (x / 2))^2 / 2
    return lever + first * once + half * half / 2 * (turning @ once)


def _cayley_turn(a: Tensor, lever: Tensor) -> Tensor:
    """(B, 3, C) ``(I - K / 2)^-1 (I + K / 2) lever``, K the cross product with a (B, 3, 1): exp(a) to second order.

    The angle is ``2 atan(|a| / 2)``, less than pi however long a is, which suits the steps of a search.
    """
    turning = skew(a)
    once = turning @ lever
    return lever + (once + 0.5 * (turning @ once)) / (1 + 0.25 * (a * a).sum(1)[:, :, None])


class Derivatives(NamedTuple):
    """An energy and half its derivatives along a chart."""

    value: Tensor  # (B, 1, 1)
    descent: Tensor  # (B, F, 1) minus the slope
    gauss_newton: Tensor  # (B, F, F) J H J^T
    hessian: Tensor  # (B, F, F) with the curvature of SO(3)


def derivatives(matrix: Tensor, chart: Chart, T: Tensor) -> Derivatives:
    """The derivatives of a `Quadratic`'s matrix along the chart at T: sums of the products of thirteen rows."""
    rows = chart.rows(T)
    products = rows @ matrix @ rows.swapaxes(1, 2)
    parts = products.reshape(-1, 169) @ beside(T, _DERIVATIVES_OF_PRODUCTS)
    hessian, gauss_newton = parts[:, :36].reshape(-1, 6, 6), parts[:, 36:72].reshape(-1, 6, 6)
    descent, value = parts[:, 72:78, None], parts[:, 78:, None]
    if len(chart.free) < 6:
        hessian, gauss_newton = (chart.select(chart.select(each).swapaxes(1, 2)) for each in (hessian, gauss_newton))
        descent = chart.select(descent)
    return Derivatives(value, descent, gauss_newton, hessian)


def determined_projector(gauss_newton: Tensor, undetermined_below: float) -> Tensor | None:
    """(B, F, F) projector onto the directions that the data determines; None when it is all of them.

    Those are the eigenvectors of ``J H J^T`` (mean, local coordinates) with an eigenvalue of at least the threshold.
    """
    return None if all_above(undetermined_below, gauss_newton) else eigenspace_above(undetermined_below, gauss_newton)


def eigenspace_above(threshold: float, matrix: Tensor) -> Tensor:
    """(B, F, F) projector onto the eigenvectors of a symmetric matrix with eigenvalues of at least the threshold."""
    # gradient stops here: which directions count is a choice
    if is_basic():
        return projector_above(threshold, matrix.detach())
    eigenvalues, vectors = torch.linalg.eigh(matrix.detach())
    return (vectors * (eigenvalues >= threshold)[:, None]) @ vectors.mT


def all_above(threshold: float, *matrices: Tensor) -> bool:
    """Whether all eigenvalues of symmetric matrices (B, F, F) are above the threshold, as Cholesky's method tells.

    False, too, where values cannot be read.
    """
    if is_basic():
        return False
    lowered = namespace(matrices[0]).concatenate(matrices)
    size = lowered.shape[-1]
    return is_definite(lowered - threshold * beside(lowered, _IDENTITY)[:size, :size])


def bounded_inverse(hessian: Tensor, gauss_newton: Tensor, undetermined_below: float) -> Tensor:
    """(B, F, F) inverse of a symmetric Hessian where it is at least the threshold, zero along all else.

    Directions are left out where the data determines nothing (small eigenvalues of ``J H J^T``), and where the energy
    does not bend upwards: no minimum is isolated there, as for the mirror image of a sphere.
    """
    if all_above(undetermined_below, hessian, gauss_newton):
        return inverted(hessian)
    projector = eigenspace_above(undetermined_below, gauss_newton)
    matrix = restricted(hessian, projector)
    kept = eigenspace_above(undetermined_below, matrix)
    return (kept @ projector).mT @ torch.linalg.solve(restricted(matrix, kept), kept @ projector)


def restricted(matrix: Tensor, projector: Tensor | None) -> Tensor:
    """The matrix on the projector's range, and the identity on the rest."""
    if projector is None:
        return matrix
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    return projector @ matrix @ projector + identity - projector


def rank(projector: Tensor) -> Tensor:
    """(B,) dimension of a projector's range."""
    return projector.diagonal(dim1=1, dim2=2).sum(-1).round().long()
