"""Distances whose W_i turn with the pose, and robust kernels: solve, look again, solve again.

Each round holds the metric and the weights still and minimises the quadratic that is left. Once that moves little,
Newton's method on the energy itself (its small Hessian from `general`) takes over and converges quadratically.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from p2plane.solve import minimize as search
from p2plane.solve.general import Field, ImplicitRoot, slope_of, tangent_jacobian
from p2plane.solve.implicit import Settings, chart_for
from p2plane.solve.inputs import holds
from p2plane.solve.problem import Problem
from p2plane.solve.procrustes import closed_form
from p2plane.solve.quadratic import Frame, Quadratic, summarize
from p2plane.solve.starts import projected
from p2plane.solve.tangent import Chart, derivatives, eigenspace_above, rank, restricted

ROUNDS = 50
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
        frame = summarize(replace(problem.pairs, metric=problem.rough)).frame
    local = _Local(_centered(problem, frame), frame, chart_for(settings, frame), form)
    with torch.no_grad():
        T = _start(local, frame.to_local(T_initial), settings)
        T, rounds = _reweight(local, T, settings)
        T, converged, steps, projector = _polish(local, T, settings)
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

    def quadratic_at(self, T: Tensor) -> Quadratic:
        """The quadratic that is left when metric and weights stay as they are at T."""
        origin = torch.zeros_like(self.frame.source_center)
        frame = Frame(origin, origin, self.frame.scale)  # the clouds are centred already
        return summarize(self.problem.linearized(self.frame.unscaled(T)), frame)


def _centered(problem: Problem, frame: Frame) -> Problem:
    """The problem in float64 with both clouds moved to the centres of the frame, absent points zero."""
    pairs = problem.pairs
    source = pairs.source.double() - frame.source_center.mT
    target = pairs.target.double() - frame.target_center.mT
    tensors = tuple(tensor.double() for tensor in problem.tensors)
    if pairs.mask is not None:
        absent = ~pairs.mask[..., None]
        source, target = source.masked_fill(absent, 0.0), target.masked_fill(absent, 0.0)
        tensors = tuple(torch.where(absent.view(*absent.shape, *[1] * (t.ndim - 3)), _neutral(t), t) for t in tensors)
    return replace(problem, pairs=replace(pairs, source=source, target=target), tensors=tensors)


def _neutral(tensor: Tensor) -> Tensor:
    """What stands where a point is absent: no normal, or a covariance that can be inverted."""
    return torch.eye(3, dtype=tensor.dtype, device=tensor.device) if tensor.ndim == 4 else torch.zeros_like(tensor)


def _start(local: _Local, T_initial: Tensor, settings: Settings) -> Tensor:
    """The caller's pose, or the minimum of the problem's rough quadratic distance, whichever has the lower energy."""
    rough = replace(local.problem.pairs, metric=local.problem.rough)
    origin = torch.zeros_like(local.frame.source_center)
    quadratic = summarize(rough, Frame(origin, origin, local.frame.scale))
    propose = closed_form if rough.metric is None else projected
    T = search.minimize(quadratic, T_initial, local.chart, propose, settings.limits).T
    theta = local.theta()
    lower = local.energy(T, T[:, :, :3], *theta) < local.energy(T_initial, T_initial[:, :, :3], *theta)
    return torch.where(lower[:, None, None], T, T_initial)


def _reweight(local: _Local, T: Tensor, settings: Settings) -> tuple[Tensor, Tensor]:
    """Rounds of looking again, until one moves little, and their number (B,); the start, where they made it worse."""
    T_start, rounds = T, torch.zeros(len(T), dtype=torch.int64, device=T.device)
    for _ in range(ROUNDS):
        T_next = search.newton(local.quadratic_at(T), T, local.chart, settings.limits, careful=True).T
        moved = (T_next - T).abs().amax((1, 2)) > CLOSE_ENOUGH
        T, rounds = T_next, rounds + moved
        if holds(~moved.any()):
            break
    if local.form == "full":
        T = torch.where((_merit(local, None, T) <= _merit(local, None, T_start))[:, None, None], T, T_start)
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
        gauss_newton = derivatives(quadratic, local.chart, T, quadratic.value_and_gradient(T)[1]).gauss_newton
        projector = eigenspace_above(limits.undetermined_below, gauss_newton)
        slope, jacobian = field(T, *theta), tangent_jacobian(field, local.chart.retract, T, theta, size)
        convex = torch.linalg.cholesky_ex(restricted((jacobian + jacobian.mT) / 2, projector)).info == 0
        matrix = search.damped(torch.where(convex[:, None, None], jacobian, gauss_newton), damping)
        step = -torch.linalg.solve_ex(restricted(matrix, projector), projector @ slope[:, :, None]).result.squeeze(-1)
        T_trial = local.chart.retract(T, step)
        short = torch.linalg.vector_norm(step, dim=-1) <= limits.tolerance
        accepted = short | (_merit(local, field, T_trial) <= _merit(local, field, T))
        T = torch.where(accepted[:, None, None], T_trial, T)
        damping = search.next_damping(damping, accepted)
        converged = short & convex & (rank(projector) > 0)
        steps = steps + ~converged
        if holds(short.all()):
            break
    return T, converged, steps + converged, projector


def _merit(local: _Local, field: Field | None, T: Tensor) -> Tensor:
    """(B,) what must not grow: the energy, or the slope's length where no energy is minimised; NaN never passes."""
    theta = local.theta()
    if local.form == "full":
        return local.energy(T, T[:, :, :3], *theta)
    assert field is not None
    return torch.linalg.vector_norm(field(T, *theta), dim=-1)
