"""Steps of a search over rigid motions: Newton's method with a guard, or the paper's plain accumulation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from p2plane.solve.basic import factored, is_traced, solved
from p2plane.solve.inputs import holds
from p2plane.solve.quadratic import Quadratic
from p2plane.solve.tangent import Chart, Derivatives, all_above, derivatives, determined_projector, rank, restricted

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
    gauss_newton: Tensor  # (B, F, F) J H J^T
    hessian: Tensor  # (B, F, F) half the Hessian

    def take(self, index: Tensor) -> Minimum:
        """Some pairs of the batch."""
        return Minimum(*(part[index] for part in self))

    def put(self, index: Tensor, some: Minimum) -> Minimum:
        """The same with some pairs of the batch in the place of those at the index."""
        return Minimum(*(whole.index_copy(0, index, part) for whole, part in zip(self, some, strict=True)))


def newton(quadratic: Quadratic, T: Tensor, chart: Chart, limits: Limits, careful: bool = False) -> Minimum:
    """Newton's method from T: damped where the energy bends downwards or a step would raise it.

    With `careful`, every step stays in the directions that the data determines where it starts.
    """
    if is_traced():
        return _newton_in_a_graph(quadratic, T, chart, limits, careful)
    slack, damping, steps = slack_of(quadratic.matrix), None, 0
    here = derivatives(quadratic.matrix, chart, T)
    iterations = torch.zeros(len(T), dtype=torch.int64, device=T.device)
    while True:
        ahead = _look_ahead(here, limits, careful, damping)
        short = is_short(ahead.gain, limits)
        if damping is not None:
            short = short & (damping == 0)  # a damped step is short anywhere
        if steps == limits.max_iterations or holds(short.all()):
            break
        T_trial = chart.retract(T, ahead.step)
        there = derivatives(quadratic.matrix, chart, T_trial)
        accepted = there.value <= here.value + slack
        steps, iterations = steps + 1, iterations + ~short.view(-1)
        if holds(accepted.all()):
            T, here = T_trial, there
        else:
            T, *parts = pick(accepted, (T_trial, *there), (T, *here))
            here = Derivatives(*parts)
            damping = torch.zeros_like(slack) if damping is None else damping
        damping = None if damping is None else next_damping(damping, accepted)
    return end_at(T, here, short.view(-1) & (ahead.info == 0), iterations, ahead.projector)


def _newton_in_a_graph(quadratic: Quadratic, T: Tensor, chart: Chart, limits: Limits, careful: bool) -> Minimum:
    """The same as a loop inside a graph, which ends as soon as all steps are short."""
    slack = slack_of(quadratic.matrix)

    def looked_ahead(here: Derivatives, damping: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ahead = _look_ahead(here, limits, careful, damping)
        is_sound = ahead.info == 0
        if ahead.projector is not None:
            is_sound = is_sound & (rank(ahead.projector) > 0)
        return ahead.step, is_short(ahead.gain, limits) & (damping == 0), is_sound

    def goes_on(count: Tensor, _step: Tensor, short: Tensor, *_: Tensor) -> Tensor:
        return (count < limits.max_iterations) & ~short.all()

    def advance(
        count: Tensor, step: Tensor, short: Tensor, _sound: Tensor, damping: Tensor, made: Tensor, *at: Tensor
    ) -> tuple[Tensor, ...]:
        T_trial = chart.retract(at[0], step)
        there = derivatives(quadratic.matrix, chart, T_trial)
        accepted = there.value <= at[1] + slack
        T, *parts = pick(accepted, (T_trial, *there), at)
        damping = next_damping(damping, accepted)
        return count + 1, *looked_ahead(Derivatives(*parts), damping), damping, made + ~short.view(-1), T, *parts

    # The first step is none: it looks around, so that all of this is in the graph once. Hence the counts of -1.
    batch, free = T.shape[0], len(chart.free)
    nowhere = T.new_full((batch, 1, 1), float("inf")), *(T.new_zeros(batch, free, size) for size in (1, free, free))
    no_step, undamped, no = T.new_zeros(batch, free), torch.zeros_like(slack), torch.zeros_like(slack, dtype=torch.bool)
    count = torch.full((), -1, dtype=torch.int64, device=T.device)
    made = count.repeat(batch)
    start = count, no_step, no, no.view(-1).clone(), undamped, made, T.clone(), *nowhere
    _, _, short, is_sound, _, iterations, T, *end = torch.while_loop(goes_on, advance, start)
    return end_at(T, Derivatives(*end), short.view(-1) & is_sound, iterations, None)


def is_short(gain: Tensor, limits: Limits) -> Tensor:
    """(B, 1, 1) whether a step of that gain may be left out."""
    return gain <= (limits.tolerance / 1000) ** 2


def slack_of(matrix: Tensor) -> Tensor:
    """(B, 1, 1) rounding of the terms of the energy with that matrix."""
    return 1e-14 * (1 + matrix[:, 12:, 12:])


def accumulate(quadratic: Quadratic, T_initial: Tensor, chart: Chart, limits: Limits, careful: bool = False) -> Minimum:
    """The paper's iterative accumulation (section 3.1): so many Gauss-Newton steps, taken as they come.

    Steps that would change nothing are left out. With `careful`, as in `newton`; that is how it starts again where the
    data turns out to leave directions open.
    """
    T, steps = T_initial, 0
    for _ in range(limits.max_iterations):
        here = derivatives(quadratic.matrix, chart, T)
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
    end = derivatives(quadratic.matrix, chart, T)
    convex = factored(restricted(end.hessian, projector))[1] == 0
    return end_at(T, end, convex & (length <= limits.tolerance), iterations, projector)


def end_at(T: Tensor, end: Derivatives, converged: Tensor, iterations: Tensor, projector: Tensor | None) -> Minimum:
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
    factor, info = factored(damped(restricted(here.hessian, projector), damping))
    if holds(info.any()) is not False:
        # Far below anything that counts: for a form that bends nowhere, or only as far as rounding lets it.
        matrix = restricted(here.gauss_newton, projector)
        least = 1e-12 * matrix.diagonal(dim1=1, dim2=2).amax(-1).clamp_min(1)[:, None, None]
        fallback = damped(matrix, least if damping is None else damping + least)
        factor = torch.where((info == 0)[:, None, None], factor, factored(fallback)[0])
    return factor, info


def _solve(factor: Tensor, descent: Tensor, projector: Tensor | None) -> Tensor:
    """(B, F, 1) the step that a factor makes of a descent (B, F, 1)."""
    return solved(descent if projector is None else projector @ descent, factor)


def damped(matrix: Tensor, damping: Tensor | float | None) -> Tensor:
    """The matrix (B, F, F) with the damping (B, 1, 1) added to its diagonal."""
    if damping is None:
        return matrix
    return matrix + damping * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def pick(condition: Tensor, one: Iterable[Tensor], other: Iterable[Tensor]) -> Iterator[Tensor]:
    for a, b in zip(one, other, strict=True):
        here = condition.view(-1, *[1] * (a.ndim - 1))
        # onnxruntime has no where for booleans
        yield (here & a) | (~here & b) if a.dtype == torch.bool else torch.where(here, a, b)


def next_damping(damping: Tensor, accepted: Tensor) -> Tensor:
    """(B, 1, 1) ten times less after a good step, down to none; four times more after a bad one."""
    damping = torch.where(accepted, damping / 10, (4 * damping).clamp_min(FIRST_DAMPING))
    return torch.where(damping < FIRST_DAMPING / 10, 0.0, damping)
