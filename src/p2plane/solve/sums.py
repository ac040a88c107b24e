"""The pass over the points: the quadratic form of all pairs, see `quadratic`, about two points among them."""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor
from torch.nn.functional import pad

from p2plane.solve.arrays import may_write_in_place, namespace, small, tensor_of
from p2plane.solve.channels import (
    Channels,
    apply_metric,
    as_channels,
    blocks_of_pairs,
    blocks_of_points,
    dot,
    is_one_block,
)
from p2plane.solve.inputs import Pairs

ROWS_APART = 8  # more than the points of a row: a power of two apart, all rows would share a few lines of the cache


def sums(pairs: Pairs, centers: Tensor | None) -> tuple[Tensor, Tensor]:
    """The form (B, 13, 13) in (T, -1) about given centres (B, 6, 1), or else the `heaviest` points; and those.

    Both in float64. Gradient: source, target, metric, weights, at fixed centres.
    """
    if centers is None:
        centers = heaviest(pairs)
    if is_one_block(pairs):
        return _form(pairs, centers), centers.double()
    forms = [
        reduce(torch.add, (_form(pairs.part((some, points)), centers[some]) for points in blocks_of_points(pairs)))
        for some in blocks_of_pairs(pairs)
    ]
    return torch.cat(forms), centers.double()


def heaviest(pairs: Pairs) -> Tensor:
    """(B, 6, 1) source and target of the pair with the largest weight, as precise as the points; zero if there is none.

    To find them takes no pass over the points. And the centroid is never farther away than the root mean square radius
    times the root of N: float64 has digits enough to move a form from here to there.
    """
    # gradient stops here: the optimal pose does not depend on the coordinates it is computed in
    if pairs.source.shape[1] == 0:
        return pairs.source.new_zeros(len(pairs.source), 6, 1, dtype=pairs.precision)
    source, target, weights = small(pairs.source.detach(), pairs.target.detach(), _presence(pairs).detach())
    rows, chosen = namespace(weights).arange(len(weights)), weights.argmax(1)
    points = namespace(source).concatenate([source[rows, chosen], target[rows, chosen]], 1)
    centers = tensor_of(points)[:, :, None].to(pairs.precision)
    return centers if pairs.mask is None else torch.where(pairs.mask.any(1)[:, None, None], centers, 0.0)


def _presence(pairs: Pairs) -> Tensor:
    """(B, N) the weights, less than any other where a pair is absent."""
    weights = torch.ones_like(pairs.source[:, :, 0]) if pairs.weights is None else pairs.weights
    return weights if pairs.mask is None else weights.masked_fill(~pairs.mask, -1.0)


def _form(pairs: Pairs, centers: Tensor) -> Tensor:
    channels = as_channels(pairs, centers=centers)
    is_planes = pairs.metric is not None and pairs.metric.ndim == 3
    return _form_of_planes(channels) if is_planes and may_write_in_place() else _form_of_quadrics(channels)


def _form_of_planes(channels: Channels) -> Tensor:
    """A plane's distance is linear in the pose, ``n.(T x~ - y) = (n (x) x~, n.y) . (T, -1)``: a sum of squared rows.

    About a centre, the precision of the points is enough for what the rows are made of; their products have twice that.
    Without a gradient, as the root of a weight has none at zero.
    """
    points, metric, weights = channels
    assert metric is not None
    normals = torch.mul(metric, weights.sqrt(), out=torch.empty_like(points[:, :3]))
    batch, _, count = points.shape
    rows = torch.empty(13, batch, count + ROWS_APART, dtype=torch.float64, device=points.device)[:, :, :count]
    by_pose = rows[:12].unflatten(0, (3, 4))  # (3, 4, B, N)
    rows[12].copy_(dot(normals, points[:, 3:]))
    precise = by_pose[:, 3].copy_(normals.transpose(0, 1))
    torch.mul(precise[:, None], points[:, :3].transpose(0, 1).double(), out=by_pose[:, :3])
    rows = rows.transpose(0, 1)
    return torch.bmm(rows, rows.mT)


def _form_of_quadrics(channels: Channels) -> Tensor:
    """``sum_i Q_i (x) x~_i x~_i^T`` as one product, (16 x N) by (N x 16); T~'s last row is (0, 0, 0, -1)."""
    points, metric, weights = channels.double()
    source, target = points.split_with_sizes((3, 3), dim=1)
    if metric is None:
        metric = torch.eye(3, dtype=target.dtype, device=target.device)[..., None].expand(
            len(target), 3, 3, target.shape[-1]
        )
    elif metric.ndim == 3:
        metric = metric[:, :, None] * metric[:, None]
    pulled = apply_metric(metric, target)  # (B, 3, N)
    corner = (pulled * target).sum(1, keepdim=True)
    top = torch.cat([metric, pulled[:, :, None]], dim=2)  # (B, 3, 4, N)
    quadrics = torch.cat([top, torch.cat([pulled, corner], dim=1)[:, None]], dim=1)  # (B, 4, 4, N)
    points = pad(source, (0, 0, 0, 1), value=1.0)
    monomials = (weights * points)[:, :, None] * points[:, None]  # (B, 4, 4, N)
    moments = quadrics.flatten(1, 2) @ monomials.flatten(1, 2).mT  # entries (a, b) by (k, l)
    form = moments.reshape(-1, 4, 4, 4, 4).transpose(2, 3).reshape(-1, 16, 16)  # entries (a, k) by (b, l) of T~
    kept = [*range(12), 15]
    return form[:, kept][:, :, kept]
