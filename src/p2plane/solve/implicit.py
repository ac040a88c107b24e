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

from p2plane.solve import newton as search
from p2plane.solve.inputs import Pairs, on_device_of, without_autocast
from p2plane.solve.minimize import minimize
from p2plane.solve.penalty import penalty_adjoint
from p2plane.solve.pointwise import in_the_callers_layout, pull_back, push_forward, tangent_channels
from p2plane.solve.procrustes import closed_form
from p2plane.solve.quadratic import Frame, Quadratic, as_channels, centered, summarize
from p2plane.solve.starts import projected
from p2plane.solve.tangent import Chart, bounded_inverse, callers_chart, derivatives

_POWERS = torch.tensor([-1.0, -1.0, -1.0, 0.0, 0.0, 0.0], dtype=torch.float64)[:, None]  # of the scale, in a step
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

    Saved for backward beyond the inputs: the pose, the frame, and the inverse of the 6 x 6 Hessian, half a KB a
    pair.
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
        end, inverse = _search(quadratic, frame.to_local(T_initial), chart, settings, closed=metric is None)
        system = quadratic.matrix if settings.gradient == "penalty" else _in_callers_units(inverse, quadratic, settings)
        return frame.to_caller(end.T), end.converged, end.iterations, quadratic.total, *frame, system

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
        # About the centroids, the precision of the points is enough: nothing is summed here.
        frame, precision = end.frame, end.pairs.precision
        channels = centered(as_channels(end.pairs, precision), frame)
        maps = frame.centered(end.T), frame.centered_direction(end.adjoint(G))
        with without_autocast(G.device):
            gradients = pull_back(channels, *(each.to(precision) for each in maps))
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
        rate = push_forward(as_channels(end.pairs, torch.float64), end.T, tangent_channels(tangents[:4], end.pairs))
        return end.adjoint(rate).neg(), *(None,) * 7


# torch.autograd.Function.apply asks for this at every call; finding it anew takes longer than a Newton step.
CompilablePose.forward.__signature__ = inspect.signature(CompilablePose.forward)  # type: ignore[attr-defined]


def _search(
    quadratic: Quadratic, T_initial: Tensor, chart: Chart, settings: Settings, closed: bool
) -> tuple[search.Minimum, Tensor]:
    """Where the search ends, and the inverse of the Hessian there."""
    limits = settings.limits
    if settings.solver == "newton":
        return minimize(quadratic, T_initial, chart, closed_form if closed else projected, limits)
    end = search.accumulate(quadratic, T_initial, chart, limits)
    at_end = derivatives(quadratic, Chart(), end.T)
    return end, bounded_inverse(at_end.hessian, at_end.gauss_newton, limits.undetermined_below)


@dataclass(frozen=True)
class _End:
    """The minimum as backward finds it, in the caller's coordinates."""

    pairs: Pairs
    T: Tensor  # (B, 3, 4)
    frame: Frame
    total: Tensor  # (B, 1, 1)
    system: Tensor  # (B, F, F) the inverse of the Hessian; the (B, 13, 13) summary for the penalty
    settings: Settings

    @staticmethod
    def saved(ctx: Any) -> _End:
        """What forward kept; its system afresh, as a function of the pairs, where second derivatives are wanted."""
        source, target, metric, weights, mask, T, total, *frame, system = ctx.saved_tensors
        pairs, frame = Pairs(source, target, metric, weights, mask, source.shape[:1]), Frame(*frame)
        if torch.is_grad_enabled():
            quadratic = summarize(pairs, frame)
            total, system = quadratic.total, quadratic.matrix
            if ctx.settings.gradient != "penalty":
                chart = Chart() if ctx.settings.solver == "accumulate" else chart_for(ctx.settings, frame)
                at_end = derivatives(quadratic, chart, frame.to_local(T))
                limit = ctx.settings.limits.undetermined_below
                inverse = bounded_inverse(at_end.hessian, at_end.gauss_newton, limit)
                system = _in_callers_units(inverse, quadratic, ctx.settings)
        return _End(pairs, T, frame, total, system, ctx.settings)

    def adjoint(self, G: Tensor) -> Tensor:
        """(B, 3, 4) ``J^T A^-1 J vec(G)``, symmetric, so that it serves forward mode too; or the penalty's."""
        if self.settings.gradient == "penalty":
            quadratic = Quadratic(self.system, self.total, self.frame)
            return penalty_adjoint(quadratic, self.T, G)
        # The directions of the search, as changes of the caller's T: about the source's centroid, or what is held.
        is_free = len(self.settings.free) == 6
        chart = Chart(source_pivot=self.frame.source_center) if is_free else Chart(free=self.settings.free)
        jacobian = chart.jacobian(self.T)
        along = torch.bmm(self.system, torch.bmm(jacobian, G.reshape(-1, 12, 1)))
        return torch.bmm(jacobian.mT, along).view(-1, 3, 4)


def _in_callers_units(inverse: Tensor, quadratic: Quadratic, settings: Settings) -> Tensor:
    """(B, F, F) the inverse of the energy's Hessian, of that in local units."""
    # A step along t is one in units of the scale, and the energy is divided by its own unit.
    powers = Chart(free=settings.free).select(on_device_of(inverse, _POWERS), 0)
    units = torch.pow(quadratic.frame.scale, powers)  # (B, F, 1)
    return inverse * (units * (units.mT / quadratic.total))
