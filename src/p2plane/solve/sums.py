"""The pass over the points: the quadratic form of all pairs, see `quadratic`, about their centres."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import torch
from torch import Tensor
from torch.nn.functional import pad

from p2plane.solve.arrays import fixed, may_write_in_place
from p2plane.solve.channels import Channels, apply_metric, blocks_of_pairs, in_blocks, is_one_block
from p2plane.solve.inputs import Pairs

ROWS_APART = 8  # more than the points of a row: a power of two apart, all rows would share a few lines of the cache


def sums(pairs: Pairs, centers: Tensor | None) -> tuple[Tensor, Tensor]:
    """The form (B, 13, 13) about given centres (B, 6, 1), or else the weighted centroids; and those, in float64.

    Gradient: source, target, metric, weights, at fixed centres.
    """
    if is_one_block(pairs):
        return _sums_of_few(pairs, centers)
    parts = [
        _sums_of_few(pairs.part(some), None if centers is None else centers[some]) for some in blocks_of_pairs(pairs)
    ]
    forms, each = zip(*parts, strict=True)
    return torch.cat(forms), torch.cat(each)


def _sums_of_few(pairs: Pairs, centers: Tensor | None) -> tuple[Tensor, Tensor]:
    is_planes = pairs.metric is not None and pairs.metric.ndim == 3
    form = _form_of_planes if is_planes and may_write_in_place() else _form_of_quadrics
    blocks = in_blocks(pairs)
    centers = _centers(blocks) if centers is None else centers
    return reduce(torch.add, (form(block, centers) for block in blocks)), centers.double()


def _centers(blocks: Iterable[Channels]) -> Tensor:
    """(B, 6, 1) the weighted centroids, as precise as the points, so that they can be subtracted in that."""
    # gradient stops here: the optimal pose does not depend on the coordinates it is computed in
    parts = [_centroids(fixed(block.points), fixed(block.weights)) for block in blocks]
    if len(parts) == 1:
        return parts[0][0]
    centroids, totals = (torch.cat(part, dim=-1).double() for part in zip(*parts, strict=True))
    return _centroids(centroids, totals)[0].to(parts[0][0].dtype)


def _centroids(points: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """(B, 6, 1) weighted centroids of points (B, 6, N), and (B, 1, 1) the sum of the weights (B, 1, N)."""
    total = weights.sum(-1, keepdim=True)
    shares = weights / total.clamp_min(torch.finfo(total.dtype).tiny)
    # A sum, not a product of matrices, which would round more.
    return (points * shares).sum(-1, keepdim=True), total


def _form_of_planes(channels: Channels, centers: Tensor) -> Tensor:
    """A plane's distance is linear in the pose, ``n.(T x~ - y) = (n (x) x~, -n.y) . g~``: a sum of squared rows.

    About the centres, the precision of the points is enough for what the rows are made of; their products have twice
    that. Without a gradient, as the root of a weight has none at zero.
    """
    points, metric, weights = channels.about(centers)
    assert metric is not None
    normals = torch.mul(metric, weights.sqrt(), out=torch.empty_like(points[:, :3]))
    batch, _, count = points.shape
    rows = torch.empty(13, batch, count + ROWS_APART, dtype=torch.float64, device=points.device)[:, :, :count]
    by_pose = rows[:12].unflatten(0, (3, 4))  # (3, 4, B, N)
    rows[12].copy_((normals * points[:, 3:]).sum(1)).neg_()
    precise = by_pose[:, 3].copy_(normals.transpose(0, 1))
    torch.mul(precise[:, None], points[:, :3].transpose(0, 1).double(), out=by_pose[:, :3])
    rows = rows.transpose(0, 1)
    return torch.bmm(rows, rows.mT)


def _form_of_quadrics(channels: Channels, centers: Tensor) -> Tensor:
    """``sum_i Q_i (x) x~_i x~_i^T`` as one product, (16 x N) by (N x 16); T~'s last row is (0, 0, 0, 1)."""
    points, metric, weights = channels.about(centers).double()
    source, target = points.split_with_sizes((3, 3), dim=1)
    if metric is None:
        metric = torch.eye(3, dtype=target.dtype, device=target.device)[..., None].expand(
            len(target), 3, 3, target.shape[-1]
        )
    elif metric.ndim == 3:
        metric = metric[:, :, None] * metric[:, None]
    pulled = apply_metric(metric, target)  # (B, 3, N)
    corner = (pulled * target).sum(1, keepdim=True)
    top = torch.cat([metric, -pulled[:, :, None]], dim=2)  # (B, 3, 4, N)
    quadrics = torch.cat([top, torch.cat([-pulled, corner], dim=1)[:, None]], dim=1)  # (B, 4, 4, N)
    points = pad(source, (0, 0, 0, 1), value=1.0)
    monomials = (weights * points)[:, :, None] * points[:, None]  # (B, 4, 4, N)
    moments = quadrics.flatten(1, 2) @ monomials.flatten(1, 2).mT  # entries (a, b) by (k, l)
    form = moments.reshape(-1, 4, 4, 4, 4).transpose(2, 3).reshape(-1, 16, 16)  # entries (a, k) by (b, l) of T~
    kept = [*range(12), 15]
    return form[:, kept][:, :, kept]
