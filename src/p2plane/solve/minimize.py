"""Minimise a quadratic summary over rigid motions: Newton's method with a guard, or the paper's plain accumulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from p2plane.geometry import so3
from p2plane.solve.inputs import holds
from p2plane.solve.quadratic import Quadratic
from p2plane.solve.tangent import Chart, derivatives, determined_projector, rank, restricted

Start = Callable[[Quadratic, Tensor], tuple[Tensor, Tensor]]

NEARLY_A_ROTATION = 0.2  # largest distance of an affine map from its nearest rotation at which that one is trusted
ROTATIONS_TRIED = (
    6  # measured: four of the sixty were enough for every one of 1,500 ellipsoids, boxes and corners but one
)
_ROTATIONS = so3.icosahedral()
FIRST_DAMPING = 1e-2  # of the mean, local Hessian, whose large eigenvalues are about one


@dataclass(frozen=True)
class Limits:
    """When a search ends, and where it does not go."""

    max_iterations: int
    tolerance: float  # a step this short, in radians and local units, is the last
    undetermined_below: float  # eigenvalues of the mean J H J^T under this are taken for zero


class Minimum(NamedTuple):
    """Where the search ended."""

    T: Tensor  # (B, 3, 4) local pose
    value: Tensor  # (B,) mean energy in local units
    converged: Tensor  # (B,) bool: the last step was short, and from a place where the energy bends upwards
    iterations: Tensor  # (B,) number of steps
    determined: Tensor  # (B,) number of directions that the data determines, where the search was careful
    gauss_newton: Tensor  # (B, F, F) J H J^T where the last step started


def minimize(quadratic: Quadratic, T_initial: Tensor, chart: Chart, start: Start, limits: Limits) -> Minimum:
    """The minimum that the better of two starts leads to; undetermined directions stay where `T_initial` has them.

    Args:
        quadratic: what is minimised.
        T_initial: (B, 3, 4) local pose of the caller's start.
        chart: coordinates of the steps.
        start: proposes a pose for large motions: `projected`, or a closed form.
        limits: when to stop.
    """
    T_start, is_sure = best_start(quadratic, T_initial, chart, start)
    best = newton(quadratic, T_start, chart, limits)
    if holds(is_sure.all()) is False:
        best = _lowest(
            [best, *(newton(quadratic, T, chart, limits) for T in rotation_starts(quadratic, T_initial, chart))]
        )
    if determined_projector(best.gauss_newton, limits.undetermined_below) is None:
        return best
    # Where directions are undetermined, equally good poses abound: prefer the one that is reached from the initial one.
    best = newton(quadratic, best.T, chart, limits, careful=True)
    near = newton(quadratic, T_initial, chart, limits, careful=True)
    preferred = (best.determined < len(chart.free)) & (near.value <= best.value + 1e-9 * (1 + best.value))
    return Minimum(
        *(torch.where(preferred.view(-1, *[1] * (a.ndim - 1)), a, b) for a, b in zip(near, best, strict=True))
    )


def newton(quadratic: Quadratic, T: Tensor, chart: Chart, limits: Limits, careful: bool = False) -> Minimum:
    """Newton's method from T: damped where the energy bends downwards or a step would raise it.

    With `careful`, every step stays in the directions that the data determines where it starts.
    """
    value, gradient = quadratic.value_and_gradient(T)
    slack = 1e-14 * quadratic.matrix[:, 12, 12]  # rounding of the energy's terms
    damping, history = None, []
    for _ in range(limits.max_iterations):
        _, slope, gauss_newton, hessian = derivatives(quadratic, chart, T, gradient)
        projector = determined_projector(gauss_newton, limits.undetermined_below) if careful else None
        step, convex = _newton_step(slope, gauss_newton, hessian, projector, damping)
        T_trial = chart.retract(T, step)
        value_trial, gradient_trial = quadratic.value_and_gradient(T_trial)

        short = torch.linalg.vector_norm(step, dim=-1) <= limits.tolerance
        history.append(short)
        accepted = short | (value_trial <= value + slack)
        if holds(accepted.all()):
            T, value, gradient = T_trial, value_trial, gradient_trial
        else:
            T = torch.where(accepted[:, None, None], T_trial, T)
            value = torch.where(accepted, value_trial, value)
            gradient = torch.where(accepted[:, None, None], gradient_trial, gradient)
            damping = _next_damping(torch.zeros_like(value) if damping is None else damping, accepted)
        if holds(short.all()):
            break
    determined = torch.full_like(short, len(chart.free), dtype=torch.int64) if projector is None else rank(projector)
    iterations = (1 + (~torch.stack(history)).sum(0)).clamp_max(len(history))
    return Minimum(T, value, short & convex & (determined > 0), iterations, determined, gauss_newton)


def accumulate(quadratic: Quadratic, T: Tensor, chart: Chart, limits: Limits) -> Minimum:
    """The paper's iterative accumulation (section 3.1): so many Gauss-Newton steps, taken as they come."""
    value, gradient = quadratic.value_and_gradient(T)
    short = torch.zeros_like(value, dtype=torch.bool)
    determined = torch.full_like(short, len(chart.free), dtype=torch.int64)
    for _ in range(limits.max_iterations):
        _, slope, gauss_newton, _ = derivatives(quadratic, chart, T, gradient)
        projector = determined_projector(gauss_newton, limits.undetermined_below)
        step, _ = _newton_step(slope, gauss_newton, gauss_newton, projector, None)
        T = chart.retract(T, step)
        value, gradient = quadratic.value_and_gradient(T)
        short = step.norm(dim=-1) <= limits.tolerance
        determined = torch.full_like(determined, len(chart.free)) if projector is None else rank(projector)
    return Minimum(
        T, value, short & (determined > 0), torch.full_like(determined, limits.max_iterations), determined, gauss_newton
    )


def best_start(quadratic: Quadratic, T_initial: Tensor, chart: Chart, start: Start) -> tuple[Tensor, Tensor]:
    """(B, 3, 4) whichever of the caller's pose and the start proposed for large motions has the lower energy.

    And (B,) whether the proposal is known to lead to the lowest minimum.
    """
    T_start, is_sure = start(quadratic, T_initial)
    T_start = bring_back_held(T_start, T_initial, chart)
    better = quadratic.value_and_gradient(T_start)[0] < quadratic.value_and_gradient(T_initial)[0]
    return torch.where(better[:, None, None], T_start, T_initial), is_sure


def projected(quadratic: Quadratic, T_initial: Tensor) -> tuple[Tensor, Tensor]:
    """(B, 3, 4) the minimiser over all affine maps, with the nearest rotation: near the answer whatever the angle.

    ``(H + eps I) g = c + eps g_initial``: eps keeps it defined where H has no full rank, as for a plane, a corner or
    any ellipsoid. There the affine map is far from a rotation, and the answer not sure.
    """
    hessian, constant = quadratic.matrix[:, :12, :12], -quadratic.matrix[:, :12, 12:]
    eps = 1e-6 * hessian.diagonal(dim1=1, dim2=2).sum(-1)[:, None, None] + 1e-30
    identity = torch.eye(12, dtype=T_initial.dtype, device=T_initial.device)
    factor, _ = torch.linalg.cholesky_ex(hessian + eps * identity)
    affine = torch.cholesky_solve(constant + eps * T_initial.reshape(-1, 12, 1), factor).view(-1, 3, 4)
    R = so3.project(affine[:, :, :3])
    is_sure = (affine[:, :, :3] - R).norm(dim=(1, 2)) < NEARLY_A_ROTATION
    return torch.cat([R, affine[:, :, 3:]], dim=-1), is_sure


def rotation_starts(quadratic: Quadratic, T_initial: Tensor, chart: Chart) -> list[Tensor]:
    """(B, 3, 4) the best few of sixty rotations spread over SO(3), each with its best translation."""
    rotations = _ROTATIONS.to(T_initial.device)
    entries = torch.nn.functional.pad(rotations, (0, 1)).flatten(1)  # (60, 12), no translation yet
    slope = entries @ quadratic.matrix[:, :12, 3:12:4] + quadratic.matrix[:, 12:, 3:12:4]  # (B, 60, 3) by t at t = 0
    curvature = quadratic.matrix[:, 3:12:4, 3:12:4]
    eps = 1e-9  # leaves an undetermined translation where it was
    curvature = curvature + eps * torch.eye(3, dtype=curvature.dtype, device=curvature.device)
    t = -torch.linalg.solve_ex(curvature, (slope - eps * T_initial[:, None, :, 3]).mT).result.mT  # (B, 60, 3)
    T = torch.cat([rotations.expand(len(t), -1, 3, 3), t[..., None]], dim=-1)  # (B, 60, 3, 4)
    extended = torch.nn.functional.pad(T.flatten(2), (0, 1), value=1.0)
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
    held_t = T_initial[:, :, 3] - chart.lever(T_initial)[:, :, 3] + chart.lever(T)[:, :, 3]
    is_free = torch.tensor([3 + k in chart.free for k in range(3)], device=T.device)
    return torch.cat([T[:, :, :3], torch.where(is_free, T[:, :, 3], held_t)[:, :, None]], dim=-1)


def _newton_step(
    slope: Tensor, gauss_newton: Tensor, hessian: Tensor, projector: Tensor | None, damping: Tensor | None
) -> tuple[Tensor, Tensor]:
    """(B, F) steps, and (B,) whether the Hessian was positive definite; where not, Gauss-Newton's takes its place."""
    factor, info = torch.linalg.cholesky_ex(_damped(restricted(hessian, projector), damping))
    convex = info == 0
    if holds(convex.all()) is not True:
        # The 1e-12, far below anything that counts, is for a form that bends nowhere.
        fallback = _damped(restricted(gauss_newton, projector), 1e-12 if damping is None else damping + 1e-12)
        factor = torch.where(convex[:, None, None], factor, torch.linalg.cholesky_ex(fallback)[0])
    if projector is not None:
        slope = projector @ slope
    return -torch.cholesky_solve(slope, factor).squeeze(-1), convex


def _damped(matrix: Tensor, damping: Tensor | float | None) -> Tensor:
    if damping is None:
        return matrix
    lift = damping[:, None, None] if isinstance(damping, Tensor) else damping
    return matrix + lift * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def _lowest(minima: list[Minimum]) -> Minimum:
    """The lowest of several minima, pair by pair; the earlier one where they are as good."""
    best = minima[0]
    for other in minima[1:]:
        best = _choose(other.value < best.value - 1e-12 * (1 + best.value), other, best)
    return best


def _choose(condition: Tensor, one: Minimum, other: Minimum) -> Minimum:
    return Minimum(
        *(torch.where(condition.view(-1, *[1] * (a.ndim - 1)), a, b) for a, b in zip(one, other, strict=True))
    )


def _next_damping(damping: Tensor, accepted: Tensor) -> Tensor:
    """(B,) ten times less after a good step, down to none; ten times more after a bad one."""
    damping = torch.where(accepted, 0.1 * damping, (10 * damping).clamp_min(FIRST_DAMPING))
    return torch.where(damping < FIRST_DAMPING, 0.0, damping)
