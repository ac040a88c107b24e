"""The gradient of the optimal pose by the implicit function theorem, without walking back through the search.

At the minimum the pose T is a function of the pairs. An upstream gradient G by T turns into one adjoint direction V
(3 x 4), ``J^T A^-1 J G`` with the Hessian A of the energy along the six tangent directions J, and V into the gradients
by all points (see `pointwise`): one more pass, and nothing of the search is kept.

The paper's penalty differs in V alone (see `penalty`).
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from p2plane.solve import minimize as search
from p2plane.solve.inputs import Pairs, holds
from p2plane.solve.penalty import penalty_adjoint
from p2plane.solve.pointwise import in_the_callers_layout, pull_back, push_forward, tangent_channels
from p2plane.solve.procrustes import closed_form
from p2plane.solve.quadratic import Frame, Quadratic, as_channels, centered, summarize
from p2plane.solve.starts import projected
from p2plane.solve.tangent import (
    Chart,
    callers_chart,
    certainly_above,
    derivatives,
    eigenspace_above,
    restricted,
)

DEFAULT_LIMITS = search.Limits(max_iterations=50, tolerance=1e-9, undetermined_below=1e-6)


@dataclass(frozen=True)
class Settings:
    """How a summary is minimised, and how its gradient is taken."""

    solver: str = "newton"
    gradient: str = "exact"
    limits: search.Limits = DEFAULT_LIMITS
    free: tuple[int, ...] = (0, 1, 2, 3, 4, 5)


def chart_for(settings: Settings, frame: Frame) -> Chart:
    """The chart whose free directions are what the settings leave free."""
    if settings.solver == "accumulate":
        return callers_chart(frame)
    if len(settings.free) == 6:
        return Chart()  # about the centroid: rotation and translation hardly mix there
    return Chart(source_pivot=-frame.source_center / frame.scale, free=settings.free)


def adjoint_chart(settings: Settings, frame: Frame) -> Chart:
    """The chart of the adjoint system: any will do that spans what is free, and this one mixes least."""
    return Chart() if len(settings.free) == 6 else chart_for(settings, frame)


def optimal_pose(pairs: Pairs, T_initial: Tensor, settings: Settings) -> tuple[Tensor, Tensor, Tensor]:
    """The pose (B, 3, 4) that minimises the energy of the pairs, in float64, and (B,) converged, (B,) iterations.

    Gradient: source, target, metric, weights.
    """
    function = CompilablePose if torch.compiler.is_compiling() else OptimalPose
    arguments = pairs.source, pairs.target, pairs.metric, pairs.weights, pairs.mask, T_initial, settings
    T, converged, iterations, *_ = function.apply(*arguments)
    return T, converged, iterations


class CompilablePose(torch.autograd.Function):
    """(x, y, metric, w) -> T, with the gradient of the implicit function theorem.

    Saved for backward beyond the inputs: the pose, the frame, and the two small matrices of the adjoint system, less
    than 1 KB a pair.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        source: Tensor,
        target: Tensor,
        metric: Tensor | None,
        weights: Tensor | None,
        mask: Tensor | None,
        T_initial: Tensor,
        settings: Settings,
    ) -> tuple[Tensor, ...]:
        quadratic = summarize(Pairs(source, target, metric, weights, mask, source.shape[:1]))
        frame = quadratic.frame
        chart = chart_for(settings, frame)
        end = _search(quadratic, frame.to_local(T_initial), chart, settings, closed=metric is None)
        if settings.gradient == "penalty":
            system: tuple[Tensor, ...] = (quadratic.matrix,)
        elif chart.has_arm and len(chart.free) == 6:
            at_end = derivatives(quadratic, adjoint_chart(settings, frame), end.T)
            system = at_end.hessian, at_end.gauss_newton
        else:
            system = end.hessian, end.gauss_newton
        return frame.to_caller(end.T), end.converged, end.iterations, end.determined, quadratic.total, *frame, *system

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        *points, mask, _, settings = inputs
        T, _, _, *rest = output
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*points, mask, T, *rest)
        ctx.save_for_forward(*points, mask, T, *rest)
        ctx.set_materialize_grads(False)
        ctx.settings = settings

    @staticmethod
    def backward(ctx: Any, G: Tensor | None, *_: Any) -> tuple:  # type: ignore[override]
        if G is None:
            return (None,) * 7
        end = _End.saved(ctx)
        frame = end.frame
        V = frame.unscaled(_adjoint(end, G)) / end.unit
        gradients = pull_back(centered(as_channels(end.pairs), frame), frame.unscaled(end.T), V)
        return *in_the_callers_layout(gradients, end.pairs), None, None, None


class OptimalPose(CompilablePose):
    """The same with forward-mode derivatives and a rule for vmap, neither of which torch.compile can trace."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *arguments: Any) -> tuple:  # type: ignore[override]
        """One more batch dimension is but a larger batch."""

        def merged(argument: Any, dim: int | None) -> Any:
            if not isinstance(argument, Tensor):
                return argument
            if dim is None:
                return argument.expand(info.batch_size, *argument.shape).flatten(0, 1)
            return argument.movedim(dim, 0).flatten(0, 1)

        outputs = OptimalPose.apply(*map(merged, arguments, in_dims))
        return tuple(output.unflatten(0, (info.batch_size, -1)) for output in outputs), (0,) * len(outputs)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple:  # type: ignore[override]
        if ctx.settings.gradient != "exact":
            raise NotImplementedError(f"forward mode must go with gradient='exact', got {ctx.settings.gradient!r}")
        end = _End.saved(ctx)
        frame = end.frame
        channels, rates = centered(as_channels(end.pairs), frame), tangent_channels(tangents[:4], end.pairs)
        rate = frame.unscaled(push_forward(channels, frame.unscaled(end.T), rates)) / end.unit
        velocity = frame.unscaled(end.solve(rate).neg())
        t = velocity[:, :, 3:] - velocity[:, :, :3] @ frame.source_center
        return torch.cat([velocity[:, :, :3], t], dim=-1), *(None,) * 9


# torch.autograd.Function.apply asks for this at every call; finding it anew takes longer than a Newton step.
CompilablePose.forward.__signature__ = inspect.signature(CompilablePose.forward)  # type: ignore[attr-defined]


def _search(quadratic: Quadratic, T_initial: Tensor, chart: Chart, settings: Settings, closed: bool) -> search.Minimum:
    if settings.solver == "accumulate":
        return search.accumulate(quadratic, T_initial, chart, settings.limits)
    return search.minimize(quadratic, T_initial, chart, closed_form if closed else projected, settings.limits)


@dataclass(frozen=True)
class _End:
    """The minimum as backward finds it."""

    pairs: Pairs
    T: Tensor  # (B, 3, 4) local pose
    determined: Tensor  # (B,) number of determined directions
    total: Tensor  # (B, 1, 1)
    frame: Frame
    system: tuple[Tensor, ...]  # the Hessian and J H J^T, each (B, F, F); the (B, 13, 13) summary for the penalty
    settings: Settings

    @staticmethod
    def saved(ctx: Any) -> _End:
        """What forward kept; its system afresh, as a function of the pairs, where second derivatives are wanted."""
        source, target, metric, weights, mask, T, determined, total, *rest = ctx.saved_tensors
        pairs = Pairs(source, target, metric, weights, mask, source.shape[:1])
        frame, system = Frame(*rest[:3]), tuple(rest[3:])
        T = frame.to_local(T)
        if torch.is_grad_enabled():
            quadratic = summarize(pairs, frame)
            at_end = derivatives(quadratic, adjoint_chart(ctx.settings, frame), T)
            total, system = quadratic.total, (at_end.hessian, at_end.gauss_newton)
            if ctx.settings.gradient == "penalty":
                system = (quadratic.matrix,)
        return _End(pairs, T, determined, total, frame, system, ctx.settings)

    @property
    def unit(self) -> Tensor:
        """(B, 1, 1) what one unit of the mean, local energy is in the caller's units."""
        return self.total * self.frame.scale.square()

    def solve(self, G: Tensor) -> Tensor:
        """(B, 3, 4) ``J^T A^-1 J vec(G)``: symmetric, so that it serves the backward and the forward derivative."""
        hessian, gauss_newton = self.system
        threshold = self.settings.limits.undetermined_below
        jacobian = adjoint_chart(self.settings, self.frame).jacobian(self.T)
        all_determined = holds((self.determined == len(self.settings.free)).all())
        projector = None if all_determined else eigenspace_above(threshold, gauss_newton)
        inverse = bounded_inverse(hessian, projector, threshold)
        along = torch.bmm(inverse, torch.bmm(jacobian, G.reshape(-1, 12, 1)))
        return torch.bmm(jacobian.mT, along).view(-1, 3, 4)


def bounded_inverse(hessian: Tensor, projector: Tensor | None, undetermined_below: float) -> Tensor:
    """(B, F, F) inverse of a symmetric Hessian where it is at least the threshold, zero along all else.

    Directions are left out where the data determines nothing (the projector), and where the energy does not bend
    upwards: no minimum is isolated there, as for the mirror image of a sphere.
    """
    matrix = restricted(hessian, projector)
    factor, info = torch.linalg.cholesky_ex(matrix)
    if holds(certainly_above(undetermined_below, matrix, factor, info).all()):
        inverse = torch.cholesky_inverse(factor)
        return inverse if projector is None else projector @ inverse @ projector
    bends_upwards = eigenspace_above(undetermined_below, matrix)
    kept = bends_upwards if projector is None else bends_upwards @ projector
    return kept.mT @ torch.linalg.solve(restricted(matrix, bends_upwards), kept)


def _adjoint(end: _End, G: Tensor) -> Tensor:
    """(B, 3, 4) adjoint direction of the local pose, for an upstream gradient by the caller's."""
    if end.settings.gradient == "penalty":
        return penalty_adjoint(Quadratic(end.system[0], end.total, end.frame), end.T, G)
    # The caller's t is scale t' + target_center - R source_center.
    by_rotation = torch.addcmul(G[:, :, :3], G[:, :, 3:], end.frame.source_center.mT, value=-1)
    return end.solve(end.frame.unscaled(torch.cat([by_rotation, G[:, :, 3:]], dim=-1)))
