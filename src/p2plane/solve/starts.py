"""Where a search begins, so that it ends in the lowest minimum whatever the rotation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from p2plane.geometry import so3
from p2plane.solve.arrays import Constant, beside, divided, namespace, nearest_rotation, tensor_of
from p2plane.solve.basic import factored, is_basic, solved
from p2plane.solve.inputs import holds
from p2plane.solve.quadratic import Quadratic
from p2plane.solve.tangent import Chart, skew


class Proposal(NamedTuple):
    """Where to begin; arrays of the kind that the quadratic is made of."""

    T: Tensor  # (B, 3, 4)
    is_sure: Tensor | None = None  # (B,) whether it is known to lead to the lowest minimum; None: everywhere
    steps_away: int = 0  # how many of Newton's steps it takes at least to get there

    def tensors(self) -> Proposal:
        """The same, made of tensors."""
        is_sure = None if self.is_sure is None else tensor_of(self.is_sure)
        return self._replace(T=tensor_of(self.T), is_sure=is_sure)


Start = Callable[[Quadratic, Tensor], Proposal]

NEARLY_A_ROTATION = 0.05  # largest distance of an affine map from its nearest rotation at which that one is trusted
EPS = 2e-6  # of the form, whose trace is two
ROTATIONS_TRIED = 6  # of the sixty; four or five have sufficed for every ellipsoid, box and corner tried
_ROTATIONS = Constant.of(so3.icosahedral())
_IDENTITY = Constant.of(torch.eye(3, dtype=torch.float64))
_REGULARIZER = Constant.of(EPS * torch.eye(12, dtype=torch.float64))


def best_start(quadratic: Quadratic, T_initial: Tensor, chart: Chart, proposal: Proposal) -> Proposal:
    """The start proposed for large motions, or the caller's pose where that has the lower energy."""
    proposal = proposal._replace(T=bring_back_held(proposal.T, T_initial, chart))
    if proposal.is_sure is None:
        return proposal
    candidates = [T_initial, proposal.T]
    # Where values cannot be read, nobody will see that it is not sure, and search from the rotations too.
    if holds(proposal.is_sure.all()) is None and not is_basic():
        candidates += rotation_starts(quadratic, T_initial, chart)
    best, value = candidates[0], quadratic.value_and_gradient(candidates[0])[0]
    for T in candidates[1:]:
        other = quadratic.value_and_gradient(T)[0]
        best, value = torch.where((other < value)[:, None, None], T, best), torch.minimum(other, value)
    return proposal._replace(T=best)


def projected(quadratic: Quadratic, T_initial: Tensor) -> Proposal:
    """The minimiser over all affine maps, with the nearest rotation: near the answer whatever the angle.

    ``(H + eps I) g = c + eps g_initial``: eps keeps it defined where H has no full rank, as for a plane, a corner or
    any ellipsoid. There the affine map is far from a rotation, and the answer not sure.
    """
    matrix = quadratic.matrix
    hessian = matrix[:, :12, :12] + beside(matrix, _REGULARIZER)
    affine = divided(hessian, EPS * T_initial.reshape(-1, 12, 1) - matrix[:, :12, 12:]).reshape(-1, 3, 4)
    A, t = affine[:, :, :3], affine[:, :, 3:]
    defect = _defect(A)
    is_sure = (_determinant(A) > 0) & ((defect * defect).sum((1, 2)) < (2 * NEARLY_A_ROTATION) ** 2)
    all_sure = holds(is_sure.all())
    R = _orthonormalized(A, defect) if all_sure else nearest_rotation(A)
    return Proposal(namespace(R).concatenate([R, t], -1), None if all_sure else is_sure, steps_away=2)


def _determinant(A: Any) -> Any:
    """(B,) ``(a x b) . c`` of the rows."""
    return ((skew(A[:, 0, :, None]) @ A[:, 1, :, None])[:, :, 0] * A[:, 2]).sum(1)


def _defect(A: Any) -> Any:
    """(B, 3, 3) ``A^T A - I``."""
    return A.swapaxes(1, 2) @ A - beside(A, _IDENTITY)


def _orthonormalized(A: Any, defect: Any) -> Any:
    """(B, 3, 3) the nearest rotations of matrices A that nearly are, by Newton and Schulz: ``A <- A (I - D / 2)``.

    The defect ``D = A^T A - I`` becomes ``-3/4 D^2 + 1/4 D^3``: 0.1 at first, and gone after four steps.
    """
    for _ in range(3):
        A = A - A @ defect / 2
        defect = _defect(A)
    return A - A @ defect / 2


def rotation_starts(quadratic: Quadratic, T_initial: Tensor, chart: Chart) -> list[Tensor]:
    """(B, 3, 4) the best few of sixty rotations spread over SO(3), each with its best translation."""
    rotations = beside(T_initial, _ROTATIONS)
    entries = pad(rotations, (0, 1)).flatten(1)  # (60, 12), no translation yet
    slope = entries @ quadratic.matrix[:, :12, 3:12:4] + quadratic.matrix[:, 12:, 3:12:4]  # (B, 60, 3) by t at t = 0
    curvature = quadratic.matrix[:, 3:12:4, 3:12:4]
    # EPS leaves an undetermined translation where it was, also where rounding makes it bend downwards: by 1e-8 of the
    # form if matrices W_i come in float32.
    curvature = curvature + EPS * torch.eye(3, dtype=curvature.dtype, device=curvature.device)
    t = -solved((slope - EPS * T_initial[:, None, :, 3]).mT, factored(curvature)[0]).mT  # (B, 60, 3)
    T = torch.cat([rotations.expand(len(t), -1, 3, 3), t[..., None]], dim=-1)  # (B, 60, 3, 4)
    extended = pad(T.flatten(2), (0, 1), value=1.0)
    values = (extended @ quadratic.matrix * extended).sum(-1)  # (B, 60)
    best = values.topk(ROTATIONS_TRIED, largest=False).indices
    lanes = T.gather(1, best[:, :, None, None].expand(-1, -1, 3, 4)).unbind(1)
    return [bring_back_held(lane, T_initial, chart) for lane in lanes]


def bring_back_held(T: Tensor, T_initial: Tensor, chart: Chart) -> Tensor:
    """(B, 3, 4) a pose near T whose held directions are those of the initial pose."""
    if len(chart.free) == 6:
        return T
    R, R_initial = T[:, :, :3], T_initial[:, :, :3]
    identity = torch.eye(3, dtype=T.dtype, device=T.device)
    turn = R @ R_initial.mT
    free_axes = [axis for axis in chart.free if axis < 3]
    if not free_axes:
        turn = identity.expand_as(R)
    elif len(free_axes) == 1:  # the nearest turn about the one free axis
        axis = free_axes[0]
        i, j = (axis + 1) % 3, (axis + 2) % 3
        angle = torch.atan2(turn[:, j, i] - turn[:, i, j], turn[:, i, i] + turn[:, j, j])
        turn = so3.exp(angle[:, None] * identity[axis])
    T = torch.cat([turn @ R_initial, T[:, :, 3:]], dim=-1)
    # What is held is the place to which the pose takes the pivot, t - arm; free components of t stay as they came.
    held_t = (T_initial[:, :, 3:] - chart.arm(T_initial) + chart.arm(T))[:, :, 0]
    is_free = torch.tensor([3 + k in chart.free for k in range(3)], device=T.device)
    return torch.cat([T[:, :, :3], torch.where(is_free, T[:, :, 3], held_t)[:, :, None]], dim=-1)
