"""Distances whose W_i turn with the pose, and robust kernels: solve, look again, solve again.

Each round holds the metric and the weights still and minimises the quadratic that is left. Once that moves little,
Newton's method on the energy itself (its small Hessian from `general`) takes over and converges quadratically.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from p2plane.solve import newton as search
from p2plane.solve.general import Field, ImplicitRoot, slope_of, tangent_jacobian
from p2plane.solve.implicit import Settings, chart_for, optimal_pose
from p2plane.solve.inputs import holds
from p2plane.solve.problem import Problem
from p2plane.solve.quadratic import Frame, Quadratic, summarize
from p2plane.solve.robust import Kernel
from p2plane.solve.tangent import Chart, derivatives, eigenspace_above, rank, restricted

ROUNDS = 50
WIDTHS = 8  # rounds in which a kernel narrows, by halves, from the largest distance
CLOSE_ENOUGH = 1e-3  # rounds end, and Newton begins, at a move this short in radians and local units


class Solution(NamedTuple):
    """Where the search ended: the caller's poses, with the gradient of the implicit function theorem."""

    T: Tensor  # (B, 3, 4)
    converged: Tensor  # (B,)
    iterations: Tensor  # (B,)


def solve(problem: Problem, T_initial: Tensor, form: str, settings: Settings) -> Solution:
    """The minimum of a problem whose metric or weights depend on the pose.

    Args:
        problem: what is minimised.
        T_initial: (B, 3, 4) the caller's start.
        form: "full" minimises the energy with the metric inside; "iterated" finds the pose at which the metric, held
            still there, has its minimum.
        settings: limits of the search.
    """
    with torch.no_grad():
        rough = replace(problem.pairs, metric=problem.rough)
        frame = summarize(rough).frame
        T_rough = optimal_pose(rough, T_initial, settings).T
    local = _Local(_centered(problem, frame), frame, chart_for(settings, frame), form)
    with torch.no_grad():
        T, T_rough = frame.to_local(T_initial), frame.to_local(T_rough)
        T_start = torch.where((_energy(local, T_rough) < _energy(local, T))[:, None, None], T_rough, T)
        T, rounds = _reweight(local, T_start, settings)
        T, converged, steps, projector = _polish(local, T, settings)
        if form != "full":  # which has no energy to tell that a search without an end has gone astray
            T = torch.where(converged[:, None, None], T, T_start)
        unit = local.quadratic_at(T).unit().flatten()
    T = ImplicitRoot.apply(local.field(unit), local.chart.retract, projector, T, *local.theta())
    return Solution(frame.to_caller(T), converged, rounds + steps)


class _Local(NamedTuple):
    """A problem with centred clouds in float64, and poses in local units; `theta` are all tensors it depends on."""

    problem: Problem
    frame: Frame
    chart: Chart
    form: str

    def theta(self) -> tuple[Tensor, ...]:
        pairs = self.problem.pairs
        return pairs.source, pairs.target, self.problem.weights(), *self.problem.tensors

    def energy(self, T: Tensor, R_of_metric: Tensor, *theta: Tensor) -> Tensor:
        """(B,) energies at local poses, the metric taken at rotations of its own."""
        source, target, weights, *tensors = theta
        pairs = replace(self.problem.pairs, source=source, target=target, weights=weights)
        problem = replace(self.problem, pairs=pairs, tensors=tuple(tensors))
        return problem.energy(self.frame.unscaled(T), R_of_metric)

    def field(self, unit: Tensor) -> Field:
        """Half the slope of the mean energy: of all of it, or with the metric held still for the form "iterated"."""
        retract, size = self.chart.retract, len(self.chart.free)
        if self.form == "full":
            return slope_of(lambda T, *theta: self.energy(T, T[:, :, :3], *theta) / unit, retract, size)

        def held(T: Tensor, *theta: Tensor) -> Tensor:
            return slope_of(lambda moved, *theta: self.energy(moved, T[:, :, :3], *theta) / unit, retract, size)(
                T, *theta
            )

        return held

    def quadratic_at(self, T: Tensor, width: Tensor | None = None) -> Quadratic:
        """The quadratic that is left when metric and weights stay as they are at T, under a kernel at least so wide."""
        origin = torch.zeros_like(self.frame.source_center)
        frame = Frame(origin, origin, self.frame.scale)  # the clouds are centred already
        return summarize(self.problem.linearized(self.frame.unscaled(T), width), frame)


def _centered(problem: Problem, frame: Frame) -> Problem:
    """The problem in float64 with both clouds moved to the centres of the frame, absent points at the origin."""
    pairs = problem.pairs
    source = pairs.source.double() - frame.source_center.mT
    target = pairs.target.double() - frame.target_center.mT
    tensors = tuple(tensor.double() for tensor in problem.tensors)
    return replace(problem, pairs=replace(pairs, source=source, target=target), tensors=tensors).without_absent()


def _reweight(local: _Local, T_start: Tensor, settings: Settings) -> tuple[Tensor, Tensor]:
    """(B, 3, 4) where rounds of looking again lead, and their number (B,); the start, where they made it worse.

    A kernel that gives outliers little weight can also give the start little to go by. So the rounds are made twice,
    the second time with the kernel wide at first and narrowed from round to round, and the lower energy counts.
    """
    T, rounds = _rounds(local, T_start, settings, widths=[])
    candidates = [T_start, T]
    if isinstance(local.problem.kernel, Kernel):
        distances = local.problem.distances(local.frame.unscaled(T_start)).abs()
        largest = pad(distances, (0, 1)).amax(-1, keepdim=True)  # (B, 1), zero where there is no point
        T, more = _rounds(local, T_start, settings, widths=[largest / 2**k for k in range(WIDTHS)])
        candidates, rounds = [*candidates, T], torch.maximum(rounds, more)
    if local.form != "full":
        return candidates[-1], rounds
    best = candidates[0]
    for T in candidates[1:]:
        best = torch.where((_energy(local, T) <= _energy(local, best))[:, None, None], T, best)
    return best, rounds


def _rounds(local: _Local, T: Tensor, settings: Settings, widths: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Rounds under kernels at least so wide, then until one moves little; and their number (B,)."""
    rounds = torch.zeros(len(T), dtype=torch.int64, device=T.device)
    for width in [*widths, *[None] * ROUNDS]:
        T_next = search.newton(local.quadratic_at(T, width), T, local.chart, settings.limits, careful=True).T
        moved = (T_next - T).abs().amax((1, 2)) > CLOSE_ENOUGH
        T, rounds = T_next, rounds + moved
        if width is None and holds(~moved.any()):
            break
    return T, rounds


def _polish(local: _Local, T: Tensor, settings: Settings) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Newton's method on the energy itself, damped where it would make things worse.

    Returns:
        (B, 3, 4) local poses, (B,) converged, (B,) steps, (B, F, F) projector onto the determined directions.
    """
    theta, size, limits = local.theta(), len(local.chart.free), settings.limits
    steps = torch.zeros(len(T), dtype=torch.int64, device=T.device)
    damping = T.new_zeros(len(T))
    for _ in range(limits.max_iterations):
        quadratic = local.quadratic_at(T)
        field = local.field(quadratic.unit().flatten())
        gauss_newton = derivatives(quadratic.matrix, local.chart, T).gauss_newton
        projector = eigenspace_above(limits.undetermined_below, gauss_newton)
        slope, jacobian = field(T, *theta), tangent_jacobian(field, local.chart.retract, T, theta, size)
        convex = torch.linalg.cholesky_ex(restricted((jacobian + jacobian.mT) / 2, projector)).info == 0
        matrix = search.damped(torch.where(convex[:, None, None], jacobian, gauss_newton), damping[:, None, None])
        step = -torch.linalg.solve_ex(restricted(matrix, projector), projector @ slope[:, :, None]).result.squeeze(-1)
        T_trial = local.chart.retract(T, step)
        short = torch.linalg.vector_norm(step, dim=-1) <= limits.tolerance
        accepted = short | (_merit(local, field, T_trial) <= _merit(local, field, T))
        short = short & (damping == 0)  # a damped step is short anywhere
        T = torch.where(accepted[:, None, None], T_trial, T)
        damping = search.next_damping(damping, accepted)
        converged = short & convex & (rank(projector) > 0)
        steps = steps + ~converged
        if holds(short.all()):
            break
    return T, converged, steps + converged, projector


def _merit(local: _Local, field: Field, T: Tensor) -> Tensor:
    """(B,) what must not grow: the energy, or the slope's length where no energy is minimised."""
    if local.form == "full":
        return _energy(local, T)
    return torch.linalg.vector_norm(field(T, *local.theta()), dim=-1)


def _energy(local: _Local, T: Tensor) -> Tensor:
    return local.energy(T, T[:, :, :3], *local.theta())
