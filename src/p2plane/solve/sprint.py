"""A few plain Newton steps from a good start: all that most searches take, at the least cost."""

from __future__ import annotations

from typing import Any

import numpy as np

from p2plane.solve.arrays import divided, inverted, namespace, silent
from p2plane.solve.inputs import holds
from p2plane.solve.newton import Limits, Minimum, is_short, slack_of
from p2plane.solve.starts import Proposal
from p2plane.solve.tangent import Chart, Derivatives, all_above, derivatives

LONGEST_SPRINT = 5  # steps; a good start is three away


def sprint(matrix: Any, proposal: Proposal, chart: Chart, limits: Limits) -> tuple[Minimum, Any] | None:
    """The minimum a few plain steps away, and the inverse of its Hessian; None if one has to look more closely.

    Only the end is looked at. It must be no higher than the start, and determined in all directions.

    Args:
        matrix: (B, 13, 13) of a `Quadratic`; the rest, and what comes back, are arrays of the same kind.
        proposal: where to begin.
        chart: coordinates of the steps.
        limits: when to stop.
    """
    try:
        with silent(matrix):  # wherever steps go astray
            return _steps(matrix, proposal, chart, limits)
    except np.linalg.LinAlgError:
        return None


def _steps(matrix: Any, proposal: Proposal, chart: Chart, limits: Limits) -> tuple[Minimum, Any] | None:
    T, highest = proposal.T, None
    iterations = namespace(T).zeros_like(T[:, 0, 0], dtype=namespace(T).int64)
    for steps in range(1 + min(LONGEST_SPRINT, limits.max_iterations)):
        here = derivatives(matrix, chart, T)
        highest = here.value + slack_of(matrix) if highest is None else highest
        inverse = inverted(here.hessian) if steps >= proposal.steps_away else None
        step = divided(here.hessian, here.descent) if inverse is None else inverse @ here.descent
        short = is_short((here.descent * step).sum(1), limits)[:, 0]
        if inverse is not None and holds(short.all()):
            end = Minimum(T, here.value[:, 0, 0], short, iterations, here.gauss_newton, here.hessian)
            return (end, inverse) if _is_minimum(here, highest, limits) else None
        T, iterations = chart.retract(T, step[:, :, 0]), iterations + ~short
    return None


def _is_minimum(here: Derivatives, highest: Any, limits: Limits) -> bool:
    is_determined = all_above(limits.undetermined_below, here.hessian, here.gauss_newton)
    return is_determined and bool(holds((here.value <= highest).all()))
