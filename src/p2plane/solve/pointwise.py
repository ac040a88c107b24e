"""What one point contributes to the derivatives of the optimal pose, for all points in one pass.

With the residual ``r_i = T x~_i - y_i`` and the adjoint direction V of the pose, ``u_i = V x~_i``:

    dL/dy_i =  w_i W_i u_i                              dL/dw_i = -u_i^T W_i r_i
    dL/dx_i = -w_i (R^T W_i u_i + V_R^T W_i r_i)        dL/dW_i = -w_i sym(u_i r_i^T)
    dL/dn_i = -w_i ((n_i . u_i) r_i + (n_i . r_i) u_i)  where W_i = n_i n_i^T
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from p2plane.solve.arrays import may_write_in_place
from p2plane.solve.channels import Channels, apply_metric, as_channels, blocks_of_pairs, blocks_of_points, is_one_block
from p2plane.solve.inputs import Pairs, without_autocast
from p2plane.solve.quadratic import Frame

_OF_TARGET = torch.eye(6)[:, 3:]  # what y adds to -r, and nothing to u


def pull_back(channels: Channels, T: Tensor, V: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """The gradients by source, target, metric and weights, channel first: the formulas at the head of this file."""
    points, metric, weights = channels
    maps = torch.cat([V, T.neg(), V], dim=1)  # (B, 9, 4)
    of_target = _OF_TARGET.to(maps).expand(len(maps), 6, 3)
    moved = torch.baddbmm(maps[:, :6, 3:], torch.cat([maps[:, :6, :3], of_target], dim=2), points)
    both = moved.unflatten(1, (2, 3))  # u_i, and -r_i, so that nothing large has to be negated
    to_metric = None
    if metric is not None and metric.ndim == 3:
        metric = metric.contiguous()
        along = _dot(both, metric[:, None])  # (B, 2, N) n.u and -n.r
        to_weights = along[:, :1] * along[:, 1:]
        along = along * weights
        forces = along[:, :, None] * metric[:, None]
        to_metric = torch.addcmul(along[:, :1] * both[:, 1], along[:, 1:], both[:, 0])
    else:
        adjoint, residual = both.unbind(1)
        pulled = apply_metric(metric, residual)
        to_weights = (adjoint * pulled).sum(1, keepdim=True)
        forces = torch.stack([weights * apply_metric(metric, adjoint), weights * pulled], dim=1)
        if metric is not None:
            outer = adjoint[:, :, None] * residual[:, None]
            to_metric = weights[:, None] * (outer + outer.transpose(1, 2)) / 2
    to_source = torch.bmm(maps[:, 3:, :3].mT, forces.flatten(1, 2))
    return to_source, forces[:, 0], to_metric, to_weights


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """(B, K, N) the dot products of (B, K, 3, N) and (B, 1, 3, N): faster than a product and its sum, and smaller."""
    (a1, a2, a3), (b1, b2, b3) = a.unbind(2), b.unbind(2)
    return torch.addcmul(torch.addcmul(a1 * b1, a2, b2), a3, b3)


def push_forward(channels: Channels, T: Tensor, tangents: Channels) -> Tensor:
    """(B, 3, 4) rate of change of the half gradient ``sum_i w_i W_i r_i x~_i^T`` when the inputs move."""
    _, metric, weights = channels
    source, target = channels.source, channels.target
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


def gradients_by_the_pairs(
    pairs: Pairs, frame: Frame, T: Tensor, V: Tensor, wanted: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """The gradients by source, target, metric and weights, in the shapes and dtypes of these; None where not wanted.

    Args:
        pairs: what the pose was made of.
        frame: whose centres both maps are between.
        T: (B, 3, 4) the pose.
        V: (B, 3, 4) its adjoint direction.
        wanted: which of the four are asked for.
    """
    # About the centroids, the precision of the points is enough: nothing is summed here.
    about = _Maps(frame.centers, T.to(pairs.precision), V.to(pairs.precision))
    if is_one_block(pairs) or not may_write_in_place():
        return _gradients(pairs, about, wanted)
    inputs = pairs.source, pairs.target, pairs.metric, pairs.weights
    whole = [
        torch.empty_like(tensor) if want and tensor is not None else None
        for tensor, want in zip(inputs, wanted, strict=True)
    ]
    for some in blocks_of_pairs(pairs):
        for points in blocks_of_points(pairs):
            parts = _gradients(pairs.part((some, points)), _Maps(*(each[some] for each in about)), wanted)
            for out, part in zip(whole, parts, strict=True):
                if out is not None and part is not None:
                    out[some, points] = part
    return tuple(whole)


class _Maps(NamedTuple):
    """Where points go, and how that moves with the adjoint direction."""

    centers: Tensor  # (B, 6, 1)
    T: Tensor  # (B, 3, 4) between the clouds about their centres
    V: Tensor  # (B, 3, 4)


def _gradients(pairs: Pairs, about: _Maps, wanted: Sequence[bool]) -> tuple[Tensor | None, ...]:
    """The same for all points at once."""
    with without_autocast(about.T.device):
        gradients = pull_back(as_channels(pairs, centers=about.centers), about.T, about.V)
    inputs = pairs.source, pairs.target, pairs.metric, pairs.weights
    return tuple(
        _in_the_callers_layout(gradient, tensor, pairs.mask) if want and tensor is not None else None
        for gradient, tensor, want in zip(gradients, inputs, wanted, strict=True)
    )


def _in_the_callers_layout(gradient: Any, tensor: Any, mask: Tensor | None) -> Tensor:
    """(B, N, ...) in the dtype of a tensor of the caller, from (B, ..., N); zero where a point is absent."""
    if mask is not None:
        gradient = gradient.masked_fill(~mask.view(len(mask), *[1] * (gradient.ndim - 2), -1), 0.0)
    rows = gradient.squeeze(1) if tensor.ndim == 2 else gradient.movedim(-1, 1)
    return rows.to(tensor.dtype)


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
