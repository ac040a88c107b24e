"""What one point contributes to the derivatives of the optimal pose, for all points in one pass.

With the residual ``r_i = T x~_i - y_i`` and the adjoint direction V of the pose, ``u_i = V x~_i``:

    dL/dy_i =  w_i W_i u_i                              dL/dw_i = -u_i^T W_i r_i
    dL/dx_i = -w_i (R^T W_i u_i + V_R^T W_i r_i)        dL/dW_i = -w_i sym(u_i r_i^T)
    dL/dn_i = -w_i ((n_i . u_i) r_i + (n_i . r_i) u_i)  where W_i = n_i n_i^T
"""

from __future__ import annotations

import torch
from torch import Tensor

from p2plane.solve.inputs import Pairs
from p2plane.solve.quadratic import Channels, apply_metric, as_channels


def pull_back(channels: Channels, T: Tensor, V: Tensor) -> Channels:
    """The gradients by all four inputs: the formulas at the head of this file."""
    source, target, metric, weights = channels
    maps = torch.cat([T.neg(), V], dim=1)  # (B, 6, 4)
    moved = torch.baddbmm(maps[:, :, 3:], maps[:, :, :3], source)
    residual, adjoint = moved[:, :3] + target, moved[:, 3:]  # -r_i, so that nothing large has to be negated, and u_i
    to_metric = None
    if metric is not None and metric.ndim == 3:
        height = torch.linalg.vecdot(metric, residual, dim=1)[:, None]  # -n.r
        lift = torch.linalg.vecdot(metric, adjoint, dim=1)[:, None]  # n.u
        to_weights = height * lift
        height, lift = weights * height, weights * lift
        forces = torch.cat([lift, height], dim=1)[:, :, None] * metric[:, None]  # (B, 2, 3, N)
        to_metric = torch.addcmul(height * adjoint, lift, residual)
    else:
        pulled = apply_metric(metric, residual)
        to_weights = (adjoint * pulled).sum(1, keepdim=True)
        forces = torch.stack([weights * apply_metric(metric, adjoint), weights * pulled], dim=1)
        if metric is not None:
            outer = adjoint[:, :, None] * residual[:, None]
            to_metric = weights[:, None] * (outer + outer.transpose(1, 2)) / 2
    to_source = torch.bmm(maps[:, :, :3].mT, forces.flatten(1, 2))
    return Channels(to_source, forces[:, 0], to_metric, to_weights)


def push_forward(channels: Channels, T: Tensor, tangents: Channels) -> Tensor:
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


def in_the_callers_layout(gradients: Channels, pairs: Pairs) -> tuple[Tensor | None, ...]:
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


def tangent_channels(tangents: tuple, pairs: Pairs) -> Channels:
    """Tangents of the inputs, zero where there is none."""
    inputs = (pairs.source, pairs.target, pairs.metric, pairs.weights)
    source, target, metric, weights = (
        torch.zeros_like(value) if tangent is None and value is not None else tangent
        for tangent, value in zip(tangents, inputs, strict=True)
    )
    if weights is None:
        weights = source.new_zeros(source.shape[:2])
    return as_channels(Pairs(source, target, metric, weights, pairs.mask, pairs.batch_shape), torch.float64)
