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

from p2plane.solve.arrays import Constant, beside, may_write_in_place, namespace, rounded, tensor_of
from p2plane.solve.channels import (
    Channels,
    apply_metric,
    as_channels,
    blocks_of_pairs,
    blocks_of_points,
    dot,
    is_one_block,
)
from p2plane.solve.inputs import Pairs, without_autocast
from p2plane.solve.quadratic import Frame

_OF_TARGET = Constant.of(torch.eye(6, dtype=torch.float64)[:, 3:])  # what y adds to -r, and nothing to u


class Maps(NamedTuple):
    """What is the same for all points of a pair, about the centres of a frame.

    In units of its scale, as V may not fit in float32 where everything else does: ``scale u`` and ``r / scale``.
    """

    centers: Tensor  # (B, 6, 1)
    forth: Tensor  # (B, 6, 7) from (x, y, 1) to u and -r, so that nothing large has to be negated
    back: Tensor  # (B, 3, 6) from w W u and -w W r to the gradient by x
    per_scale: Tensor  # (B, 1, 1) from w W u in these units to that in the caller's

    @staticmethod
    def of(T: Any, V: Any, frame: Frame, dtype: torch.dtype) -> Maps:
        """The maps of a pose and its adjoint direction (B, 3, 4), arrays of either kind, as tensors of a dtype."""
        joined, scale = namespace(T).concatenate, frame.scale
        turned, direction = -frame.centered(T), scale * scale * frame.centered_direction(V)
        maps = joined([direction, turned, direction], 1)  # (B, 9, 4)
        of_source, offset = maps[:, :6, :3], maps[:, :6, 3:]
        of_target = namespace(T).zeros_like(of_source) + beside(T, _OF_TARGET)
        forth = joined([of_source, of_target, offset], 2) / scale
        # About the centres, the precision of the points is enough: nothing is summed.
        parts = frame.centers, forth, maps[:, 3:, :3].swapaxes(1, 2), 1 / scale
        return Maps(*(tensor_of(rounded(part, dtype)) for part in parts))

    def part(self, some: slice) -> Maps:
        """Those of some pairs of the batch."""
        return Maps(*(each[some] for each in self))


def pull_back(channels: Channels, maps: Maps) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """The gradients by source, target, metric and weights, channel first: the formulas at the head of this file."""
    points, metric, weights = channels
    moved = torch.baddbmm(maps.forth[:, :, 6:], maps.forth[:, :, :6], points)
    both = moved.unflatten(1, (2, 3))  # u_i, and -r_i
    to_metric = None
    if metric is not None and metric.ndim == 3:
        metric = metric.contiguous()
        along = dot(both, metric[:, None])  # (B, 2, N) n.u and -n.r
        to_weights = along[:, :1] * along[:, 1:]
        along = along * weights
        forces = (along * maps.per_scale)[:, :, None] * metric[:, None]
        to_metric = torch.addcmul(along[:, :1] * both[:, 1], along[:, 1:], both[:, 0])
    else:
        adjoint, residual = both.unbind(1)
        pulled = apply_metric(metric, residual)
        to_weights = (adjoint * pulled).sum(1, keepdim=True)
        forces = torch.stack([apply_metric(metric, adjoint), pulled], dim=1) * (weights * maps.per_scale)[:, None]
        if metric is not None:
            outer = adjoint[:, :, None] * residual[:, None]
            to_metric = weights[:, None] * (outer + outer.transpose(1, 2)) / 2
    to_source = torch.bmm(forces.flatten(1, 2).mT, maps.back.mT).mT  # in the caller's layout, as it comes
    return to_source, forces[:, 0], to_metric, to_weights


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


def gradients_by_the_pairs(pairs: Pairs, maps: Maps, wanted: Sequence[bool]) -> tuple[Tensor | None, ...]:
    """The gradients by source, target, metric and weights, in the shapes and dtypes of these; None where not wanted.

    Args:
        pairs: what the pose was made of.
        maps: of the pose and its adjoint direction.
        wanted: which of the four are asked for.
    """
    if is_one_block(pairs) or not may_write_in_place():
        return _gradients(pairs, maps, wanted)
    inputs = pairs.source, pairs.target, pairs.metric, pairs.weights
    whole = [
        torch.empty_like(tensor) if want and tensor is not None else None
        for tensor, want in zip(inputs, wanted, strict=True)
    ]
    for some in blocks_of_pairs(pairs):
        for points in blocks_of_points(pairs):
            parts = _gradients(pairs.part((some, points)), maps.part(some), wanted)
            for out, part in zip(whole, parts, strict=True):
                if out is not None and part is not None:
                    out[some, points] = part
    return tuple(whole)


def _gradients(pairs: Pairs, maps: Maps, wanted: Sequence[bool]) -> tuple[Tensor | None, ...]:
    """The same for all points at once."""
    with without_autocast(pairs.source.device):
        gradients = pull_back(as_channels(pairs, centers=maps.centers), maps)
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
