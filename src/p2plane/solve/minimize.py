"""Minimise a quadratic summary over rigid motions: Newton's method with a guard, or the paper's plain accumulation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from p2plane.solve.arrays import alike, tensor_of
from p2plane.solve.basic import factored, is_basic
from p2plane.solve.inputs import holds
from p2plane.solve.newton import Limits, Minimum, damped, newton, pick
from p2plane.solve.quadratic import Quadratic
from p2plane.solve.sprint import sprint
from p2plane.solve.starts import Proposal, Start, best_start, rotation_starts
from p2plane.solve.tangent import Chart, all_above, bounded_inverse

FIRST_STEPS = 12  # of every start; by then it shows where most of them lead


def minimize(
    quadratic: Quadratic, T_initial: Tensor, chart: Chart, start: Start, limits: Limits
) -> tuple[Minimum, Tensor]:
    """The lowest minimum found, and the `bounded_inverse` of its Hessian.

    Undetermined directions stay where `T_initial` has them.

    Args:
        quadratic: what is minimised; the rest, and what comes back, are arrays of the same kind.
        T_initial: (B, 3, 4) local pose of the caller's start.
        chart: coordinates of the steps.
        start: proposes a pose for large motions: `projected`, or a closed form.
        limits: when to stop.
    """
    proposal = start(quadratic, T_initial)
    found = sprint(quadratic.matrix, proposal, chart, limits) if _is_plain(proposal, chart) else None
    if found is not None:
        return found
    end, inverse = _search(quadratic.tensors(), tensor_of(T_initial), proposal.tensors(), chart, limits)
    return Minimum(*(alike(quadratic.matrix, part) for part in end)), alike(quadratic.matrix, inverse)


def _is_plain(proposal: Proposal, chart: Chart) -> bool:
    """Whether the proposal is all that a sprint needs."""
    return proposal.is_sure is None and len(chart.free) == 6 and not is_basic()


def _search(
    quadratic: Quadratic, T_initial: Tensor, proposal: Proposal, chart: Chart, limits: Limits
) -> tuple[Minimum, Tensor]:
    """The same for whatever is not plain: starts that may mislead, directions that are held or open."""
    proposal = best_start(quadratic, T_initial, chart, proposal)
    if is_basic():
        best = _from_all_starts(quadratic, T_initial, proposal, chart, limits)
        return best, factored(best.hessian)[0]
    found = None if _is_plain(proposal, chart) else sprint(quadratic.matrix, proposal, chart, limits)
    best = _lowest(quadratic, T_initial, proposal, chart, limits, False, None if found is None else found[0])
    if not all_above(limits.undetermined_below, best.gauss_newton):
        best = _with_directions_open(quadratic, T_initial, proposal, chart, limits)
    return best, bounded_inverse(best.hessian, best.gauss_newton, limits.undetermined_below)


def _from_all_starts(
    quadratic: Quadratic, T_initial: Tensor, proposal: Proposal, chart: Chart, limits: Limits
) -> Minimum:
    """The same minimum without a look at values on the way: from all starts at once, wherever one is needed."""
    starts = [proposal.T, T_initial]
    if proposal.is_sure is not None:
        starts += rotation_starts(quadratic, T_initial, chart)
    best, near, *others = _minima(quadratic, starts, chart, limits, careful=True)
    if proposal.is_sure is not None:
        best = _choose(proposal.is_sure, best, _lowest_of(best, others))
    lowered = damped(best.gauss_newton, -limits.undetermined_below)
    return _nearest_of_equals(best, near, leaves_open=factored(lowered)[1] != 0)


def _with_directions_open(
    quadratic: Quadratic, T_initial: Tensor, proposal: Proposal, chart: Chart, limits: Limits
) -> Minimum:
    """Where directions are undetermined, equally good poses abound: prefer one reached from the initial pose."""
    best = _lowest(quadratic, T_initial, proposal, chart, limits, True)
    near = newton(quadratic, T_initial, chart, limits, careful=True)
    leaves_open = torch.linalg.eigvalsh(best.gauss_newton)[:, 0] < limits.undetermined_below
    return _nearest_of_equals(best, near, leaves_open)


def _nearest_of_equals(best: Minimum, near: Minimum, leaves_open: Tensor) -> Minimum:
    """The minimum reached from the initial pose, where directions are open (B,) and it is as good as the best."""
    as_good = (near.value <= best.value + 1e-9 * (1 + best.value)) & (near.converged | ~best.converged)
    return _choose(as_good & leaves_open, near, best)


def _lowest(
    quadratic: Quadratic,
    T_initial: Tensor,
    proposal: Proposal,
    chart: Chart,
    limits: Limits,
    careful: bool,
    best: Minimum | None = None,
) -> Minimum:
    """The minimum that the proposal leads to, known already or not; where it was not sure to, the lowest of several.

    Of several starts, all make a few steps, and the one that is lowest then goes on to its end.
    """
    if proposal.is_sure is None or holds(proposal.is_sure.all()) is not False:
        return newton(quadratic, proposal.T, chart, limits, careful) if best is None else best
    first = replace(limits, max_iterations=min(FIRST_STEPS, limits.max_iterations))
    best = newton(quadratic, proposal.T, chart, first, careful) if best is None else best
    unsure = (~proposal.is_sure).nonzero()[:, 0]
    some, some_chart = quadratic.take(unsure), chart.take(unsure)
    starts = rotation_starts(some, T_initial[unsure], some_chart)
    others = _minima(some, starts, some_chart, first, careful)
    best = best.put(unsure, _lowest_of(best.take(unsure), others))
    rest = replace(limits, max_iterations=limits.max_iterations - first.max_iterations)
    unfinished = (~best.converged).nonzero()[:, 0]
    end = newton(quadratic.take(unfinished), best.T[unfinished], chart.take(unfinished), rest, careful)
    return best.put(unfinished, end._replace(iterations=end.iterations + best.iterations[unfinished]))


def _minima(
    quadratic: Quadratic, starts: list[Tensor], chart: Chart, limits: Limits, careful: bool
) -> Iterator[Minimum]:
    """The minima that are reached from several poses (B, 3, 4)."""
    again = torch.arange(starts[0].shape[0], device=starts[0].device).repeat(len(starts))
    found = newton(quadratic.take(again), torch.cat(starts), chart.take(again), limits, careful)
    return map(Minimum._make, zip(*(part.chunk(len(starts)) for part in found), strict=True))


def _lowest_of(best: Minimum, others: Iterable[Minimum]) -> Minimum:
    """Pair by pair the lowest, the best one so far if that is as low, but rather one that has converged."""
    for other in others:
        margin = 1e-12 * (1 + best.value)
        lower = other.value < best.value - margin
        finished = (other.value <= best.value + margin) & other.converged & ~best.converged
        best = _choose(lower | finished, other, best)
    return best


def _choose(condition: Tensor, one: Minimum, other: Minimum) -> Minimum:
    """Pair by pair, one minimum where the condition (B,) holds, else the other."""
    return Minimum(*pick(condition, one, other))
