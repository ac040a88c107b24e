"""The gradient of the optimal pose by the implicit function theorem, without walking back through the search.

At the minimum the pose T is a function of the pairs. An upstream gradient G by T turns into one adjoint direction V
(3 x 4), the answer of a 6 x 6 system with the Hessian of the energy, and with ``r_i = T x~_i - y_i``, ``u_i = V x~_i``:

    dL/dy_i =  w_i W_i u_i                              dL/dw_i = -u_i^T W_i r_i
    dL/dx_i = -w_i (R^T W_i u_i + V_R^T W_i r_i)        dL/dW_i = -w_i sym(u_i r_i^T)
    dL/dn_i = -w_i ((n_i . u_i) r_i + (n_i . r_i) u_i)  where W_i = n_i n_i^T

The paper's penalty differs in V alone (see `penalty`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from p2plane.solve import minimize as search
from p2plane.solve.inputs import Pairs, holds
from p2plane.solve.penalty import penalty_adjoint
from p2plane.solve.procrustes import closed_form
from p2plane.solve.quadratic import Channels, Frame, Quadratic, apply_metric, as_channels, centered, summarize
from p2plane.solve.tangent import (
    Chart,
    callers_chart,
    certainly_above,
    derivatives,
    determined_projector,
    eigenspace_above,
    restricted,
)


DEFAULT_LIMITS = search.Limits(max_iterations=30, tolerance=1e-8, undetermined_below=1e-6)


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
    return Chart(source_pivot=-frame.source_center / frame.scale[:, None], free=settings.free)


class OptimalPose(torch.autograd.Function):
    """(x, y, metric, w) -> T, with the gradient of the implicit function theorem.

    Saved for backward beyond the inputs: the pose, the 13 x 13 summary, and the frame, 1.5 KB a pair.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(source, target, metric, weights, mask, T_initial, settings: Settings):  # type: ignore[override]
        pairs = Pairs(source, target, metric, weights, mask, source.shape[:1])
        quadratic = summarize(pairs)
        frame = quadratic.frame
        chart = chart_for(settings, frame)
        minimum = _search(quadratic, frame.to_local(T_initial), chart, settings, closed=metric is None)
        return (
            frame.to_caller(minimum.T),
            minimum.converged,
            minimum.iterations,
            quadratic.matrix,
            quadratic.total,
            *frame,
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        *points, mask, _, settings = inputs
        T, converged, iterations, matrix, total, *frame = output
        ctx.mark_non_differentiable(converged, iterations, matrix, total, *frame)
        ctx.save_for_backward(*points, mask, T, matrix, total, *frame)
        ctx.save_for_forward(*points, mask, T, matrix, total, *frame)
        ctx.set_materialize_grads(False)
        ctx.settings = settings

    @staticmethod
    def backward(ctx: Any, G: Tensor | None, *_: Any) -> tuple:  # type: ignore[override]
        if G is None:
            return (None,) * 7
        pairs, T, quadratic = _saved(ctx)
        frame = quadratic.frame
        V = frame.unscaled(_adjoint(quadratic, T, G, ctx.settings)) / quadratic.unit()[:, None, None]
        gradients = _pull_back(centered(as_channels(pairs), frame), frame.unscaled(T), V)
        return *_in_the_callers_layout(gradients, pairs), None, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple:  # type: ignore[override]
        pairs, T, quadratic = _saved(ctx)
        frame = quadratic.frame
        channels, rates = centered(as_channels(pairs), frame), _tangent_channels(tangents[:4], pairs)
        rate = frame.unscaled(_push_forward(channels, frame.unscaled(T), rates)) / quadratic.unit()[:, None, None]
        velocity = frame.unscaled(-_AdjointSystem.at(quadratic, T, ctx.settings).solve(rate))
        t = velocity[:, :, 3:] - velocity[:, :, :3] @ frame.source_center[:, :, None]
        return torch.cat([velocity[:, :, :3], t], dim=-1), *(None,) * 7


def _search(quadratic: Quadratic, T_initial: Tensor, chart: Chart, settings: Settings, closed: bool) -> search.Minimum:
    if settings.solver == "accumulate":
        return search.accumulate(quadratic, T_initial, chart, settings.limits)
    return search.minimize(quadratic, T_initial, chart, closed_form if closed else search.projected, settings.limits)


def _saved(ctx: Any) -> tuple[Pairs, Tensor, Quadratic]:
    """The pairs, the local pose and the summary; that one afresh where derivatives of the gradient are wanted."""
    source, target, metric, weights, mask, T, matrix, total, *frame = ctx.saved_tensors
    pairs = Pairs(source, target, metric, weights, mask, source.shape[:1])
    frame = Frame(*frame)
    quadratic = summarize(pairs, frame) if torch.is_grad_enabled() else Quadratic(matrix, total, frame)
    return pairs, frame.to_local(T), quadratic


@dataclass(frozen=True)
class _AdjointSystem:
    """``J^T A^-1 J`` at a pose: symmetric, so that it serves the backward and the forward derivative."""

    jacobian: Tensor  # (B, F, 12)
    inverse: Tensor  # (B, F, F), zero along what is not determined

    @staticmethod
    def at(quadratic: Quadratic, T: Tensor, settings: Settings) -> _AdjointSystem:
        threshold = settings.limits.undetermined_below
        chart = Chart() if len(settings.free) == 6 else chart_for(settings, quadratic.frame)
        _, gradient = quadratic.value_and_gradient(T)
        jacobian, _, gauss_newton, hessian = derivatives(quadratic, chart, T, gradient)
        projector = determined_projector(gauss_newton, threshold)
        return _AdjointSystem(jacobian, bounded_inverse(hessian, projector, threshold))

    def solve(self, G: Tensor) -> Tensor:
        """(B, 3, 4) ``J^T A^-1 J vec(G)``."""
        along = self.inverse @ (self.jacobian @ G.flatten(1)[:, :, None])
        return (self.jacobian.mT @ along).squeeze(-1).unflatten(1, (3, 4))


def bounded_inverse(hessian: Tensor, projector: Tensor | None, undetermined_below: float) -> Tensor:
    """(B, F, F) inverse of a symmetric Hessian where it is at least the threshold, zero along all else.

    Directions are left out where the data determines nothing (the projector), and where the energy does not bend
    upwards: no minimum is isolated there, as for the mirror image of a sphere.
    """
    matrix = restricted(hessian, projector)
    factor, info = torch.linalg.cholesky_ex(matrix)
    if holds(certainly_above(undetermined_below, matrix, factor, info).all()):
        return (
            torch.cholesky_inverse(factor)
            if projector is None
            else projector @ torch.cholesky_inverse(factor) @ projector
        )
    bends_upwards = eigenspace_above(undetermined_below, matrix)
    kept = bends_upwards if projector is None else bends_upwards @ projector
    return kept.mT @ torch.linalg.solve(restricted(matrix, bends_upwards), kept)


def _adjoint(quadratic: Quadratic, T: Tensor, G: Tensor, settings: Settings) -> Tensor:
    """(B, 3, 4) adjoint direction of the local pose, for an upstream gradient by the caller's."""
    if settings.gradient == "penalty":
        return penalty_adjoint(quadratic, T, G)
    # The caller's t is scale t' + target_center - R source_center.
    by_rotation = G[:, :, :3] - G[:, :, 3:] * quadratic.frame.source_center[:, None]
    G_local = quadratic.frame.unscaled(torch.cat([by_rotation, G[:, :, 3:]], dim=-1))
    return _AdjointSystem.at(quadratic, T, settings).solve(G_local)


def _pull_back(channels: Channels, T: Tensor, V: Tensor) -> Channels:
    """The gradients by all four inputs: the formulas at the head of this file."""
    source, target, metric, weights = channels
    residual = torch.baddbmm(T[:, :, 3:] - target, T[:, :, :3], source)  # r_i
    adjoint = torch.baddbmm(V[:, :, 3:], V[:, :, :3], source)  # u_i
    to_metric = None
    if metric is not None and metric.ndim == 3:
        height, lift = (metric * residual).sum(1, keepdim=True), (metric * adjoint).sum(1, keepdim=True)  # n.r, n.u
        to_weights = -height * lift
        height, lift = -weights * height, weights * lift
        to_target, force = lift * metric, height * metric
        to_metric = torch.addcmul(height * adjoint, lift, residual, value=-1)
    else:
        pulled = apply_metric(metric, residual)
        to_weights = -(adjoint * pulled).sum(1, keepdim=True)
        to_target, force = weights * apply_metric(metric, adjoint), -weights * pulled
        if metric is not None:
            outer = adjoint[:, :, None] * residual[:, None]
            to_metric = -weights[:, None] * (outer + outer.transpose(1, 2)) / 2
    to_source = torch.baddbmm(torch.bmm(V[:, :, :3].mT, force), T[:, :, :3].mT, to_target, alpha=-1)
    return Channels(to_source, to_target, to_metric, to_weights)


def _push_forward(channels: Channels, T: Tensor, tangents: Channels) -> Tensor:
    """(B, 3, 4) rate of change of the half gradient ``sum_i w_i W_i r_i x~_i^T`` when the inputs move."""
    source, target, metric, weights = channels
    residual = torch.baddbmm(T[:, :, 3:] - target, T[:, :, :3], source)
    pulled = apply_metric(metric, residual)
    force_rate = tangents.weights * pulled + weights * apply_metric(
        metric, T[:, :, :3] @ tangents.source - tangents.target
    )
    if metric is not None and tangents.metric is not None:
        if metric.ndim == 3:
            rate = tangents.metric
            force_rate = force_rate + weights * (
                rate * (metric * residual).sum(1, keepdim=True) + metric * (rate * residual).sum(1, keepdim=True)
            )
        else:
            force_rate = force_rate + weights * apply_metric(tangents.metric, residual)
    by_rotation = force_rate @ source.mT + (weights * pulled) @ tangents.source.mT
    return torch.cat([by_rotation, force_rate.sum(-1, keepdim=True)], dim=-1)


def _in_the_callers_layout(gradients: Channels, pairs: Pairs) -> tuple[Tensor | None, ...]:
    """(B, N, ...) gradients in the caller's dtypes and layout; zero where a point is absent."""
    inputs = (pairs.source, pairs.target, pairs.metric, pairs.weights)
    rows: list[Tensor | None] = []
    for value, tensor in zip(gradients, inputs, strict=True):
        if value is None or tensor is None:
            rows.append(None)
            continue
        if pairs.mask is not None:
            value = value.masked_fill(~pairs.mask.view(len(value), *[1] * (value.ndim - 2), -1), 0.0)
        rows.append(value.movedim(-1, 1).reshape(tensor.shape).to(tensor.dtype))
    return tuple(rows)


def _tangent_channels(tangents: tuple, pairs: Pairs) -> Channels:
    """Tangents of the inputs, zero where there is none."""
    inputs = (pairs.source, pairs.target, pairs.metric, pairs.weights)
    source, target, metric, weights = (
        torch.zeros_like(value) if tangent is None and value is not None else tangent
        for tangent, value in zip(tangents, inputs, strict=True)
    )
    if weights is None:
        weights = source.new_zeros(source.shape[:2])
    return as_channels(Pairs(source, target, metric, weights, pairs.mask, pairs.batch_shape))
