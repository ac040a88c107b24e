"""The gradient of the optimal pose by the implicit function theorem, without walking back through the search.

At the minimum the pose T is a function of the pairs. An upstream gradient G by T turns into one adjoint direction V
(3 x 4), ``J^T A^-1 J G`` with the Hessian A of the energy along the six tangent directions J, and V into the gradients
by all points (see `pointwise`): one more pass, and nothing of the search is kept.

The paper's penalty differs in V alone (see `penalty`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor

from p2plane.solve import newton as search
from p2plane.solve.arrays import Constant, alike, beside, namespace, rounded, silent, small, tensor_of
from p2plane.solve.channels import as_channels
from p2plane.solve.inputs import Pairs
from p2plane.solve.minimize import minimize
from p2plane.solve.penalty import penalty_adjoint
from p2plane.solve.pointwise import Maps, gradients_by_the_pairs, push_forward, tangent_channels
from p2plane.solve.procrustes import closed_form
from p2plane.solve.quadratic import Frame, Quadratic, small_summary, summarize
from p2plane.solve.starts import projected
from p2plane.solve.tangent import Chart, bounded_inverse, callers_chart, derivatives

try:  # private to torch, which may move them
    from torch._C import _are_functorch_transforms_active
    from torch._functorch.utils import unwrap_dead_wrappers
except ImportError:
    unwrap_dead_wrappers = None  # type: ignore[assignment]

# Powers of the scale in a step, (1, 6, 1).
_POWERS = Constant.of(torch.tensor([-1.0, -1.0, -1.0, 0.0, 0.0, 0.0], dtype=torch.float64)[None, :, None])
_LAST_ROW = Constant.of(torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64))
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


class Optimum(NamedTuple):
    """Where the energy of the pairs is least."""

    T: Tensor  # (B, 3, 4) in float64
    T_target_source: Tensor  # (B, 4, 4) as precise as the points
    converged: Tensor  # (B,)
    iterations: Tensor  # (B,)


def optimal_pose(pairs: Pairs, T_initial: Tensor, settings: Settings) -> Optimum:
    """The pose that minimises the energy of the pairs.

    Gradient: source, target, metric, weights.
    """
    function = CompilablePose if torch.compiler.is_compiling() else OptimalPose
    arguments = pairs.source, pairs.target, pairs.metric, pairs.weights, pairs.mask, T_initial, settings
    return Optimum(*function.apply(*arguments)[:4])


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
        pairs = Pairs(source, target, metric, weights, mask, source.shape[:1])
        quadratic = small_summary(pairs) if _is_plain(settings) else summarize(pairs)
        frame, chart = quadratic.frame, chart_for(settings, quadratic.frame)
        T_local = frame.to_local(alike(quadratic.matrix, T_initial))
        end, inverse = _search(quadratic, T_local, chart, settings, closed=metric is None)
        system = quadratic.matrix if settings.gradient == "penalty" else _in_callers_units(inverse, quadratic, settings)
        T = frame.to_caller(end.T)
        pose = rounded(_homogeneous(T), pairs.precision)
        rest = end.converged, end.iterations, quadratic.total, *frame, system
        return tuple(map(tensor_of, (T, pose, *rest)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        *points, mask, _, settings = inputs
        T, _, _, _, *rest = output
        ctx.mark_non_differentiable(*output[2:])
        ctx.save_for_backward(*points, mask, T, *rest)
        ctx.save_for_forward(*points, mask, T, *rest)
        ctx.set_materialize_grads(False)
        ctx.settings = settings

    @staticmethod
    def backward(ctx: Any, by_T: Tensor | None, by_pose: Tensor | None, *_: Any) -> tuple:  # type: ignore[override]
        given = [G for G in (by_T, None if by_pose is None else by_pose[:, :3]) if G is not None]
        if not given:
            return (None,) * 7
        end = _End.saved(ctx)
        maps = end.maps(reduce(torch.add, given))
        return *gradients_by_the_pairs(end.pairs, maps, wanted=ctx.needs_input_grad[:4]), None, None, None


class OptimalPose(CompilablePose):
    """The same with forward-mode derivatives and a rule for vmap, neither of which torch.compile can trace."""

    @classmethod
    def apply(cls, *arguments: Any) -> Any:
        """As torch does it, but for a look at the signature of forward, which takes longer than a Newton step."""
        if unwrap_dead_wrappers is None or _are_functorch_transforms_active():
            return super().apply(*arguments)
        return super(torch.autograd.Function, cls).apply(*unwrap_dead_wrappers(arguments))  # type: ignore[misc]

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
        T_rate = end.adjoint(rate).neg()
        pose_rate = torch.nn.functional.pad(T_rate, (0, 0, 0, 1)).to(end.pairs.precision)
        return T_rate, pose_rate, *(None,) * 7


def _homogeneous(T: Any) -> Any:
    """(B, 4, 4) as `se3.homogeneous`, of arrays of either kind."""
    last_rows = namespace(T).zeros_like(T[:, :1]) + beside(T, _LAST_ROW)
    return namespace(T).concatenate([T, last_rows], 1)


def _is_plain(settings: Settings) -> bool:
    """Whether the search may be a short one, for which small arrays are worth while."""
    return settings.solver == "newton" and len(settings.free) == 6


def _search(
    quadratic: Quadratic, T_initial: Tensor, chart: Chart, settings: Settings, closed: bool
) -> tuple[search.Minimum, Tensor]:
    """Where the search ends, and the inverse of the Hessian there."""
    limits = settings.limits
    if settings.solver == "newton":
        return minimize(quadratic, T_initial, chart, closed_form if closed else projected, limits)
    end = search.accumulate(quadratic, T_initial, chart, limits)
    at_end = derivatives(quadratic.matrix, Chart(), end.T)
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
                at_end = derivatives(quadratic.matrix, chart, frame.to_local(T))
                limit = ctx.settings.limits.undetermined_below
                inverse = bounded_inverse(at_end.hessian, at_end.gauss_newton, limit)
                system = _in_callers_units(inverse, quadratic, ctx.settings)
        return _End(pairs, T, frame, total, system, ctx.settings)

    def adjoint(self, G: Tensor) -> Tensor:
        """(B, 3, 4) V for an upstream gradient, or a rate of change; the operator is symmetric and serves both."""
        if self.settings.gradient == "penalty":
            return penalty_adjoint(Quadratic(self.system, self.total, self.frame), self.T, G)
        return _exact_adjoint(self.T, G, self.system, self.frame.source_center, self.settings.free)

    def maps(self, G: Tensor) -> Maps:
        """What an upstream gradient (B, 3, 4) means for each point."""
        if self.settings.gradient == "penalty":
            return Maps.of(self.T, self.adjoint(G.double()), self.frame, self.pairs.precision)
        T, G, system, *parts = small(self.T, G, self.system, *self.frame)
        frame = Frame(*parts)
        with silent(T):  # an upstream gradient that is not finite
            V = _exact_adjoint(T, rounded(G, torch.float64), system, frame.source_center, self.settings.free)
            return Maps.of(T, V, frame, self.pairs.precision)


def _exact_adjoint(T: Any, G: Any, system: Any, source_center: Any, free: tuple[int, ...]) -> Any:
    """(B, 3, 4) ``J^T A^-1 J vec(G)``, as arrays of the same kind."""
    # The directions of the search, as changes of the caller's T: about the source's centroid, or what is held.
    chart = Chart(source_pivot=source_center) if len(free) == 6 else Chart(free=free)
    jacobian = chart.jacobian(T)
    along = system @ (jacobian @ G.reshape(-1, 12, 1))
    return (jacobian.swapaxes(1, 2) @ along).reshape(-1, 3, 4)


def _in_callers_units(inverse: Tensor, quadratic: Quadratic, settings: Settings) -> Tensor:
    """(B, F, F) the inverse of the energy's Hessian, of that in local units."""
    # A step along t is one in units of the scale, and the energy is divided by its own unit.
    units = quadratic.frame.scale ** Chart(free=settings.free).select(beside(inverse, _POWERS))  # (B, F, 1)
    return inverse * (units * (units.swapaxes(1, 2) / quadratic.total))
