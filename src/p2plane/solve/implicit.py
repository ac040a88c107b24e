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

    Saved for backward beyond the inputs: the pose, the 13 x 13 summary, and the frame, 1.5 KB a pair.
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
        T = frame.to_caller(end.T)
        return T, end.converged, end.iterations, end.determined, quadratic.matrix, quadratic.total, *frame

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        *points, mask, _, settings = inputs
        T, _, _, *summary = output
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*points, mask, T, *summary)
        ctx.save_for_forward(*points, mask, T, *summary)
        ctx.set_materialize_grads(False)
        ctx.settings = settings

    @staticmethod
    def backward(ctx: Any, G: Tensor | None, *_: Any) -> tuple:  # type: ignore[override]
        if G is None:
            return (None,) * 7
        pairs, T, quadratic, determined = _saved(ctx)
        frame = quadratic.frame
        V = frame.unscaled(_adjoint(quadratic, T, G, determined, ctx.settings)) / quadratic.unit()
        gradients = pull_back(centered(as_channels(pairs), frame), frame.unscaled(T), V)
        return *in_the_callers_layout(gradients, pairs), None, None, None


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
        pairs, T, quadratic, determined = _saved(ctx)
        frame = quadratic.frame
        channels, rates = centered(as_channels(pairs), frame), tangent_channels(tangents[:4], pairs)
        rate = frame.unscaled(push_forward(channels, frame.unscaled(T), rates)) / quadratic.unit()
        velocity = frame.unscaled(-_AdjointSystem.at(quadratic, T, determined, ctx.settings).solve(rate))
        t = velocity[:, :, 3:] - velocity[:, :, :3] @ frame.source_center
        return torch.cat([velocity[:, :, :3], t], dim=-1), *(None,) * 8


# torch.autograd.Function.apply asks for this at every call; finding it anew takes longer than a Newton step.
CompilablePose.forward.__signature__ = inspect.signature(CompilablePose.forward)  # type: ignore[attr-defined]


def _search(quadratic: Quadratic, T_initial: Tensor, chart: Chart, settings: Settings, closed: bool) -> search.Minimum:
    if settings.solver == "accumulate":
        return search.accumulate(quadratic, T_initial, chart, settings.limits)
    return search.minimize(quadratic, T_initial, chart, closed_form if closed else projected, settings.limits)


def _saved(ctx: Any) -> tuple[Pairs, Tensor, Quadratic, Tensor]:
    """The pairs, the local pose, the summary (afresh where second derivatives are wanted), the number determined."""
    source, target, metric, weights, mask, T, determined, matrix, total, *frame = ctx.saved_tensors
    pairs = Pairs(source, target, metric, weights, mask, source.shape[:1])
    frame = Frame(*frame)
    quadratic = summarize(pairs, frame) if torch.is_grad_enabled() else Quadratic(matrix, total, frame)
    return pairs, frame.to_local(T), quadratic, determined


@dataclass(frozen=True)
class _AdjointSystem:
    """``J^T A^-1 J`` at a pose: symmetric, so that it serves the backward and the forward derivative."""

    jacobian: Tensor  # (B, F, 12)
    inverse: Tensor  # (B, F, F), zero along what is not determined

    @staticmethod
    def at(quadratic: Quadratic, T: Tensor, determined: Tensor, settings: Settings) -> _AdjointSystem:
        threshold = settings.limits.undetermined_below
        chart = Chart() if len(settings.free) == 6 else chart_for(settings, quadratic.frame)
        _, gradient = quadratic.value_and_gradient(T)
        jacobian, _, gauss_newton, hessian = derivatives(quadratic, chart, T, gradient)
        all_determined = holds((determined == len(settings.free)).all())
        projector = None if all_determined else eigenspace_above(threshold, gauss_newton)
        return _AdjointSystem(jacobian, bounded_inverse(hessian, projector, threshold))

    def solve(self, G: Tensor) -> Tensor:
        """(B, 3, 4) ``J^T A^-1 J vec(G)``."""
        along = torch.bmm(self.inverse, torch.bmm(self.jacobian, G.reshape(-1, 12, 1)))
        return torch.bmm(self.jacobian.mT, along).view(-1, 3, 4)


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


def _adjoint(quadratic: Quadratic, T: Tensor, G: Tensor, determined: Tensor, settings: Settings) -> Tensor:
    """(B, 3, 4) adjoint direction of the local pose, for an upstream gradient by the caller's."""
    if settings.gradient == "penalty":
        return penalty_adjoint(quadratic, T, G)
    # The caller's t is scale t' + target_center - R source_center.
    by_rotation = torch.addcmul(G[:, :, :3], G[:, :, 3:], quadratic.frame.source_center.mT, value=-1)
    G_local = quadratic.frame.unscaled(torch.cat([by_rotation, G[:, :, 3:]], dim=-1))
    return _AdjointSystem.at(quadratic, T, determined, settings).solve(G_local)
