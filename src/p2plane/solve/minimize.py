"""Minimise a quadratic summary over rigid motions: Newton's method with a guard, or the paper's plain accumulation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from p2plane.solve.inputs import holds
from p2plane.solve.quadratic import Quadratic
from p2plane.solve.starts import Start, best_start, rotation_starts
from p2plane.solve.tangent import Chart, Derivatives, derivatives, determined_projector, rank, restricted

FIRST_DAMPING = 1e-4  # of the mean, local Hessian: its eigenvalues are about one, or small where little is determined
STANDS_STILL = 1e-15  # a step that no longer shows in float64


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
    converged: Tensor  # (B,) bool: the next step would be short, and the energy bends upwards
    iterations: Tensor  # (B,) number of steps
    determined: Tensor  # (B,) number of directions that the data determines, where the search was careful
    gauss_newton: Tensor  # (B, F, F) J H J^T
    hessian: Tensor  # (B, F, F) half the Hessian


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
    start_and_sure: tuple[Tensor, Tensor | None],
    chart: Chart,
    limits: Limits,
    careful: bool,
) -> Minimum:
    """The minimum that the start leads to; where that is not sure to be the lowest, the lowest of several."""
    T_start, is_sure = start_and_sure
    best = newton(quadratic, T_start, chart, limits, careful)
    if is_sure is not None and holds(is_sure.all()) is False:
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
    slack = 1e-14 * (1 + quadratic.matrix[:, 12, 12])  # rounding of the energy's terms
    damping, history = None, []
    here = derivatives(quadratic, chart, T)
    for _ in range(limits.max_iterations):
        projector = determined_projector(here.gauss_newton, limits.undetermined_below) if careful else None
        factor = _factor(here, projector, damping)
        T_trial = chart.retract(T, -_solve(factor, here.slope, projector).squeeze(-1))
        there = derivatives(quadratic, chart, T_trial)
        gain = torch.linalg.vecdot(there.slope, _solve(factor, there.slope, projector), dim=1)[:, 0]  # of a next step
        accepted = there.value <= here.value + slack
        # The gain is the next step's squared length in the metric of the energy, where rounding is alike all around.
        short = accepted & (gain <= (limits.tolerance / 1000) ** 2)
        if damping is not None:
            short = short & (damping == 0)  # a damped step is short anywhere
        history.append(short)
        if holds(accepted.all()):
            T, here = T_trial, there
        else:
            T = torch.where(accepted[:, None, None], T_trial, T)
            here = Derivatives(*_pick(accepted, there, here))
            damping = torch.zeros_like(slack) if damping is None else damping
        damping = None if damping is None else next_damping(damping, accepted)
        if holds(short.all()):
            break
    iterations = (1 + (~torch.stack(history)).sum(0)).clamp_max(len(history))
    return _end(T, here, chart, short, iterations, projector)


def accumulate(quadratic: Quadratic, T_initial: Tensor, chart: Chart, limits: Limits, careful: bool = False) -> Minimum:
    """The paper's iterative accumulation (section 3.1): so many Gauss-Newton steps, taken as they come.

    Steps that would change nothing are left out. With `careful`, as in `newton`; that is how it starts again where the
    data turns out to leave directions open.
    """
    T, steps = T_initial, 0
    for _ in range(limits.max_iterations):
        here = derivatives(quadratic, chart, T)
        projector = determined_projector(here.gauss_newton, limits.undetermined_below) if careful else None
        factor = _factor(here._replace(hessian=here.gauss_newton), projector, None)
        step = -_solve(factor, here.slope, projector).squeeze(-1)
        T, steps = chart.retract(T, step), steps + 1
        length = torch.linalg.vector_norm(step, dim=-1)
        if holds((length < STANDS_STILL).all()):
            break
    if not careful and determined_projector(here.gauss_newton, limits.undetermined_below) is not None:
        return accumulate(quadratic, T_initial, chart, limits, careful=True)
    iterations = torch.full_like(length, steps, dtype=torch.int64)
    return _end(T, derivatives(quadratic, chart, T), chart, length <= limits.tolerance, iterations, projector)


def _end(
    T: Tensor, end: Derivatives, chart: Chart, finished: Tensor, iterations: Tensor, projector: Tensor | None
) -> Minimum:
    """The minimum at T, if it is one."""
    convex = torch.linalg.cholesky_ex(restricted(end.hessian, projector)).info == 0
    converged = finished & convex
    if projector is None:
        determined = torch.full_like(iterations, len(chart.free))
    else:
        determined = rank(projector)
        converged = converged & (determined > 0)
    return Minimum(T, end.value, converged, iterations, determined, end.gauss_newton, end.hessian)


def _factor(here: Derivatives, projector: Tensor | None, damping: Tensor | None) -> Tensor:
    """(B, F, F) Cholesky factors of the Hessian; of the Gauss-Newton matrix where that is not positive definite."""
    factor, info = torch.linalg.cholesky_ex(damped(restricted(here.hessian, projector), damping))
    convex = info == 0
    if holds(convex.all()) is not True:
        # The 1e-12, far below anything that counts, is for a form that bends nowhere.
        fallback = damped(restricted(here.gauss_newton, projector), 1e-12 if damping is None else damping + 1e-12)
        factor = torch.where(convex[:, None, None], factor, torch.linalg.cholesky_ex(fallback)[0])
    return factor


def _solve(factor: Tensor, slope: Tensor, projector: Tensor | None) -> Tensor:
    """(B, F, 1) the step back that a factor makes of a slope (B, F, 1)."""
    return torch.cholesky_solve(slope if projector is None else projector @ slope, factor)


def damped(matrix: Tensor, damping: Tensor | float | None) -> Tensor:
    """The matrix (B, F, F) with the damping (B,) added to its diagonal."""
    if damping is None:
        return matrix
    lift = damping[:, None, None] if isinstance(damping, Tensor) else damping
    return matrix + lift * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def _choose(condition: Tensor, one: Minimum, other: Minimum) -> Minimum:
    """Pair by pair, one minimum where the condition (B,) holds, else the other."""
    return Minimum(*_pick(condition, one, other))


def _pick(condition: Tensor, one: Iterable[Tensor], other: Iterable[Tensor]) -> Iterator[Tensor]:
    for a, b in zip(one, other, strict=True):
        yield torch.where(condition.view(-1, *[1] * (a.ndim - 1)), a, b)


def next_damping(damping: Tensor, accepted: Tensor) -> Tensor:
    """(B,) ten times less after a good step, down to none; four times more after a bad one."""
    damping = torch.where(accepted, damping / 10, (4 * damping).clamp_min(FIRST_DAMPING))
    return torch.where(damping < FIRST_DAMPING / 10, 0.0, damping)
