"""Minimise a quadratic summary over rigid motions: Newton's method with a guard, or the paper's plain accumulation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from p2plane.solve.inputs import holds
from p2plane.solve.quadratic import Quadratic
from p2plane.solve.starts import Start, best_start, rotation_starts
from p2plane.solve.tangent import Chart, derivatives, determined_projector, rank, restricted

FIRST_DAMPING = 1e-4  # of the mean, local Hessian: its eigenvalues are about one, or small where little is determined


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
    """The lowest minimum found; undetermined directions stay where `T_initial` has them.

    Args:
        quadratic: what is minimised.
        T_initial: (B, 3, 4) local pose of the caller's start.
        chart: coordinates of the steps.
        start: proposes a pose for large motions: `projected`, or a closed form.
        limits: when to stop.
    """
    start_and_sure = best_start(quadratic, T_initial, chart, start)
    best = _search(quadratic, T_initial, start_and_sure, chart, limits, careful=False)
    if determined_projector(best.gauss_newton, limits.undetermined_below) is None:
        return best
    # Where directions are undetermined, equally good poses abound: prefer the one that is reached from the initial one.
    best = _search(quadratic, T_initial, start_and_sure, chart, limits, careful=True)
    near = newton(quadratic, T_initial, chart, limits, careful=True)
    as_good = (near.value <= best.value + 1e-9 * (1 + best.value)) & (near.converged | ~best.converged)
    return _choose(as_good & (best.determined < len(chart.free)), near, best)


def _search(
    quadratic: Quadratic,
    T_initial: Tensor,
    start_and_sure: tuple[Tensor, Tensor],
    chart: Chart,
    limits: Limits,
    careful: bool,
) -> Minimum:
    """The minimum that the start leads to; where that is not sure to be the lowest, the lowest of several."""
    T_start, is_sure = start_and_sure
    best = newton(quadratic, T_start, chart, limits, careful)
    if holds(is_sure.all()) is False:
        for T_other in rotation_starts(quadratic, T_initial, chart):
            other = newton(quadratic, T_other, chart, limits, careful)
            margin = 1e-12 * (1 + best.value)
            lower = other.value < best.value - margin
            finished = (other.value <= best.value + margin) & other.converged & ~best.converged
            best = _choose(~is_sure & (lower | finished), other, best)
    return best


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
        accepted = short | (value_trial <= value + slack)
        if damping is not None:
            short = short & (damping == 0)  # a damped step is short anywhere
        history.append(short)
        if holds(accepted.all()):
            T, value, gradient = T_trial, value_trial, gradient_trial
        else:
            T = torch.where(accepted[:, None, None], T_trial, T)
            value = torch.where(accepted, value_trial, value)
            gradient = torch.where(accepted[:, None, None], gradient_trial, gradient)
            damping = torch.zeros_like(value) if damping is None else damping
        damping = None if damping is None else next_damping(damping, accepted)
        if holds(short.all()):
            break
    determined = torch.full_like(short, len(chart.free), dtype=torch.int64) if projector is None else rank(projector)
    iterations = (1 + (~torch.stack(history)).sum(0)).clamp_max(len(history))
    return Minimum(T, value, short & convex & (determined > 0), iterations, determined, gauss_newton)


def accumulate(quadratic: Quadratic, T_initial: Tensor, chart: Chart, limits: Limits, careful: bool = False) -> Minimum:
    """The paper's iterative accumulation (section 3.1): so many Gauss-Newton steps, taken as they come.

    With `careful`, as in `newton`; that is how it starts again where the data turns out to leave directions open.
    """
    T = T_initial
    value, gradient = quadratic.value_and_gradient(T)
    for _ in range(limits.max_iterations):
        _, slope, gauss_newton, _ = derivatives(quadratic, chart, T, gradient)
        projector = determined_projector(gauss_newton, limits.undetermined_below) if careful else None
        step, _ = _newton_step(slope, gauss_newton, gauss_newton, projector, None)
        T = chart.retract(T, step)
        value, gradient = quadratic.value_and_gradient(T)
    if not careful and determined_projector(gauss_newton, limits.undetermined_below) is not None:
        return accumulate(quadratic, T_initial, chart, limits, careful=True)
    short = torch.linalg.vector_norm(step, dim=-1) <= limits.tolerance
    determined = torch.full_like(short, len(chart.free), dtype=torch.int64) if projector is None else rank(projector)
    iterations = torch.full_like(determined, limits.max_iterations)
    return Minimum(T, value, short & (determined > 0), iterations, determined, gauss_newton)


def _newton_step(
    slope: Tensor, gauss_newton: Tensor, hessian: Tensor, projector: Tensor | None, damping: Tensor | None
) -> tuple[Tensor, Tensor]:
    """(B, F) steps, and (B,) whether the Hessian was positive definite; where not, Gauss-Newton's takes its place."""
    factor, info = torch.linalg.cholesky_ex(damped(restricted(hessian, projector), damping))
    convex = info == 0
    if holds(convex.all()) is not True:
        # The 1e-12, far below anything that counts, is for a form that bends nowhere.
        fallback = damped(restricted(gauss_newton, projector), 1e-12 if damping is None else damping + 1e-12)
        factor = torch.where(convex[:, None, None], factor, torch.linalg.cholesky_ex(fallback)[0])
    if projector is not None:
        slope = projector @ slope
    return -torch.cholesky_solve(slope, factor).squeeze(-1), convex


def damped(matrix: Tensor, damping: Tensor | float | None) -> Tensor:
    """The matrix (B, F, F) with the damping (B,) added to its diagonal."""
    if damping is None:
        return matrix
    lift = damping[:, None, None] if isinstance(damping, Tensor) else damping
    return matrix + lift * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def _choose(condition: Tensor, one: Minimum, other: Minimum) -> Minimum:
    """Pair by pair, one minimum where the condition (B,) holds, else the other."""
    pick = (torch.where(condition.view(-1, *[1] * (a.ndim - 1)), a, b) for a, b in zip(one, other, strict=True))
    return Minimum(*pick)


def next_damping(damping: Tensor, accepted: Tensor) -> Tensor:
    """(B,) ten times less after a good step, down to none; four times more after a bad one."""
    damping = torch.where(accepted, damping / 10, (4 * damping).clamp_min(FIRST_DAMPING))
    return torch.where(damping < FIRST_DAMPING / 10, 0.0, damping)
