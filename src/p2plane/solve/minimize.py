"""Minimise a quadratic summary over rigid motions: Newton's method with a guard, or the paper's plain accumulation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from p2plane.solve.inputs import holds
from p2plane.solve.quadratic import Quadratic
from p2plane.solve.starts import Proposal, Start, best_start, rotation_starts
from p2plane.solve.tangent import (
    Chart,
    Derivatives,
    all_above,
    bounded_inverse,
    derivatives,
    determined_projector,
    rank,
    restricted,
)

FIRST_DAMPING = 1e-4  # of the mean, local Hessian: its eigenvalues are about one, or small where little is determined
LONGEST_SPRINT = 5  # steps; a good start is three away
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
    gauss_newton: Tensor  # (B, F, F) J H J^T
    hessian: Tensor  # (B, F, F) half the Hessian

    def take(self, index: Tensor) -> Minimum:
        """Some pairs of the batch."""
        return Minimum(*(part[index] for part in self))


def minimize(
    quadratic: Quadratic, T_initial: Tensor, chart: Chart, start: Start, limits: Limits
) -> tuple[Minimum, Tensor]:
    """The lowest minimum found, and the `bounded_inverse` of its Hessian.

    Undetermined directions stay where `T_initial` has them.

    Args:
        quadratic: what is minimised.
        T_initial: (B, 3, 4) local pose of the caller's start.
        chart: coordinates of the steps.
        start: proposes a pose for large motions: `projected`, or a closed form.
        limits: when to stop.
    """
    proposal = best_start(quadratic, T_initial, chart, start)
    sprint = _sprint(quadratic, proposal, chart, limits)
    if sprint is not None and proposal.is_sure is None:
        return sprint
    best = newton(quadratic, proposal.T, chart, limits) if sprint is None else sprint[0]
    best = _lowest_of_unsure(quadratic, T_initial, proposal, chart, limits, False, best)
    if not all_above(limits.undetermined_below, best.gauss_newton):
        best = _with_directions_open(quadratic, T_initial, proposal, chart, limits)
    return best, bounded_inverse(best.hessian, best.gauss_newton, limits.undetermined_below)


def _sprint(quadratic: Quadratic, proposal: Proposal, chart: Chart, limits: Limits) -> tuple[Minimum, Tensor] | None:
    """The minimum a few plain steps away, and the inverse of its Hessian; None if one has to look more closely.

    Only the end is looked at. It must be no higher than the start, and determined in all directions.
    """
    T, iterations = proposal.T, torch.zeros(len(proposal.T), dtype=torch.int64, device=proposal.T.device)
    for steps in range(1 + min(LONGEST_SPRINT, limits.max_iterations)):
        here = derivatives(quadratic, chart, T)
        if steps == 0:
            highest = here.value + _slack(quadratic)
        may_end = steps >= proposal.steps_away
        if may_end:
            inverse = torch.linalg.inv_ex(here.hessian).inverse
            step = torch.bmm(inverse, here.descent)
        else:
            step = torch.linalg.solve_ex(here.hessian, here.descent).result
        short = _is_short(torch.bmm(here.descent.mT, step), limits)
        if may_end and holds(short.all()):
            break
        T, iterations = chart.retract(T, step.squeeze(-1)), iterations + ~short.view(-1)
    else:
        return None
    is_minimum = all_above(limits.undetermined_below, here.hessian, here.gauss_newton)
    if not is_minimum or not holds((here.value <= highest).all()):
        return None
    return _end(T, here, short.view(-1), iterations, None), inverse


def _with_directions_open(
    quadratic: Quadratic, T_initial: Tensor, proposal: Proposal, chart: Chart, limits: Limits
) -> Minimum:
    """Where directions are undetermined, equally good poses abound: prefer one reached from the initial pose."""
    best = newton(quadratic, proposal.T, chart, limits, careful=True)
    best = _lowest_of_unsure(quadratic, T_initial, proposal, chart, limits, True, best)
    near = newton(quadratic, T_initial, chart, limits, careful=True)
    as_good = (near.value <= best.value + 1e-9 * (1 + best.value)) & (near.converged | ~best.converged)
    leaves_open = torch.linalg.eigvalsh(best.gauss_newton)[:, 0] < limits.undetermined_below
    return _choose(as_good & leaves_open, near, best)


def _lowest_of_unsure(
    quadratic: Quadratic,
    T_initial: Tensor,
    proposal: Proposal,
    chart: Chart,
    limits: Limits,
    careful: bool,
    best: Minimum,
) -> Minimum:
    """The best minimum so far; where the proposal was not sure to lead to the lowest, the lowest of several."""
    if proposal.is_sure is None or holds(proposal.is_sure.all()) is not False:
        return best
    unsure = (~proposal.is_sure).nonzero()[:, 0]
    lowest = _lowest(quadratic.take(unsure), T_initial[unsure], chart.take(unsure), limits, careful, best.take(unsure))
    return Minimum(*(whole.index_copy(0, unsure, part) for whole, part in zip(best, lowest, strict=True)))


def _lowest(
    quadratic: Quadratic, T_initial: Tensor, chart: Chart, limits: Limits, careful: bool, best: Minimum
) -> Minimum:
    """The lowest minimum that is reached from rotations all around, if it is lower than the best one so far."""
    starts = rotation_starts(quadratic, T_initial, chart)
    again = torch.arange(len(T_initial), device=T_initial.device).repeat(len(starts))
    found = newton(quadratic.take(again), torch.cat(starts), chart.take(again), limits, careful)
    for other in map(Minimum._make, zip(*(part.chunk(len(starts)) for part in found), strict=True)):
        margin = 1e-12 * (1 + best.value)
        lower = other.value < best.value - margin
        finished = (other.value <= best.value + margin) & other.converged & ~best.converged
        best = _choose(lower | finished, other, best)
    return best


def newton(quadratic: Quadratic, T: Tensor, chart: Chart, limits: Limits, careful: bool = False) -> Minimum:
    """Newton's method from T: damped where the energy bends downwards or a step would raise it.

    With `careful`, every step stays in the directions that the data determines where it starts.
    """
    slack, damping, steps = _slack(quadratic), None, 0
    here = derivatives(quadratic, chart, T)
    iterations = torch.zeros(len(T), dtype=torch.int64, device=T.device)
    while True:
        ahead = _look_ahead(here, limits, careful, damping)
        short = _is_short(ahead.gain, limits)
        if damping is not None:
            short = short & (damping == 0)  # a damped step is short anywhere
        if steps == limits.max_iterations or holds(short.all()):
            break
        T_trial = chart.retract(T, ahead.step)
        there = derivatives(quadratic, chart, T_trial)
        accepted = there.value <= here.value + slack
        steps, iterations = steps + 1, iterations + ~short.view(-1)
        if holds(accepted.all()):
            T, here = T_trial, there
        else:
            T, *parts = _pick(accepted, (T_trial, *there), (T, *here))
            here = Derivatives(*parts)
            damping = torch.zeros_like(slack) if damping is None else damping
        damping = None if damping is None else next_damping(damping, accepted)
    return _end(T, here, short.view(-1) & (ahead.info == 0), iterations, ahead.projector)


def _is_short(gain: Tensor, limits: Limits) -> Tensor:
    """(B, 1, 1) whether a step of that gain may be left out."""
    return gain <= (limits.tolerance / 1000) ** 2


def _slack(quadratic: Quadratic) -> Tensor:
    """(B, 1, 1) rounding of the energy's terms."""
    return 1e-14 * (1 + quadratic.matrix[:, 12:, 12:])


def accumulate(quadratic: Quadratic, T_initial: Tensor, chart: Chart, limits: Limits, careful: bool = False) -> Minimum:
    """The paper's iterative accumulation (section 3.1): so many Gauss-Newton steps, taken as they come.

    Steps that would change nothing are left out. With `careful`, as in `newton`; that is how it starts again where the
    data turns out to leave directions open.
    """
    T, steps = T_initial, 0
    for _ in range(limits.max_iterations):
        here = derivatives(quadratic, chart, T)
        projector = determined_projector(here.gauss_newton, limits.undetermined_below) if careful else None
        factor, _ = _factor(here._replace(hessian=here.gauss_newton), projector, None)
        step = _solve(factor, here.descent, projector).squeeze(-1)
        T, steps = chart.retract(T, step), steps + 1
        length = torch.linalg.vector_norm(step, dim=-1)
        if holds((length < STANDS_STILL).all()):
            break
    if not careful and not all_above(limits.undetermined_below, here.gauss_newton):
        return accumulate(quadratic, T_initial, chart, limits, careful=True)
    iterations = torch.full_like(length, steps, dtype=torch.int64)
    end = derivatives(quadratic, chart, T)
    convex = torch.linalg.cholesky_ex(restricted(end.hessian, projector)).info == 0
    return _end(T, end, convex & (length <= limits.tolerance), iterations, projector)


def _end(T: Tensor, end: Derivatives, converged: Tensor, iterations: Tensor, projector: Tensor | None) -> Minimum:
    """The minimum at T, if it is one: not where nothing is determined."""
    if projector is not None:
        converged = converged & (rank(projector) > 0)
    return Minimum(T, end.value.view(-1), converged, iterations, end.gauss_newton, end.hessian)


class _Ahead(NamedTuple):
    """The next step, seen from a pose."""

    step: Tensor  # (B, F)
    gain: Tensor  # (B, 1, 1) its squared length in the metric of the energy, where rounding is alike all around
    info: Tensor  # (B,) zero where the energy bends upwards
    projector: Tensor | None  # (B, F, F) onto the directions that it may take


def _look_ahead(here: Derivatives, limits: Limits, careful: bool, damping: Tensor | None) -> _Ahead:
    projector = determined_projector(here.gauss_newton, limits.undetermined_below) if careful else None
    factor, info = _factor(here, projector, damping)
    step = _solve(factor, here.descent, projector)
    return _Ahead(step.squeeze(-1), torch.bmm(here.descent.mT, step), info, projector)


def _factor(here: Derivatives, projector: Tensor | None, damping: Tensor | None) -> tuple[Tensor, Tensor]:
    """(B, F, F) Cholesky factors of the Hessian; of the Gauss-Newton matrix where that is not positive definite.

    And (B,) zero where it is.
    """
    factor, info = torch.linalg.cholesky_ex(damped(restricted(here.hessian, projector), damping))
    if holds(info.any()) is not False:
        # The 1e-12, far below anything that counts, is for a form that bends nowhere.
        fallback = damped(restricted(here.gauss_newton, projector), 1e-12 if damping is None else damping + 1e-12)
        factor = torch.where((info == 0)[:, None, None], factor, torch.linalg.cholesky_ex(fallback)[0])
    return factor, info


def _solve(factor: Tensor, descent: Tensor, projector: Tensor | None) -> Tensor:
    """(B, F, 1) the step that a factor makes of a descent (B, F, 1)."""
    return torch.cholesky_solve(descent if projector is None else projector @ descent, factor)


def damped(matrix: Tensor, damping: Tensor | float | None) -> Tensor:
    """The matrix (B, F, F) with the damping (B, 1, 1) added to its diagonal."""
    if damping is None:
        return matrix
    return matrix + damping * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def _choose(condition: Tensor, one: Minimum, other: Minimum) -> Minimum:
    """Pair by pair, one minimum where the condition (B,) holds, else the other."""
    return Minimum(*_pick(condition, one, other))


def _pick(condition: Tensor, one: Iterable[Tensor], other: Iterable[Tensor]) -> Iterator[Tensor]:
    for a, b in zip(one, other, strict=True):
        yield torch.where(condition.view(-1, *[1] * (a.ndim - 1)), a, b)


def next_damping(damping: Tensor, accepted: Tensor) -> Tensor:
    """(B, 1, 1) ten times less after a good step, down to none; four times more after a bad one."""
    damping = torch.where(accepted, damping / 10, (4 * damping).clamp_min(FIRST_DAMPING))
    return torch.where(damping < FIRST_DAMPING / 10, 0.0, damping)
