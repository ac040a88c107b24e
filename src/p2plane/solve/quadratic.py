"""One pass over the points turns any squared distance into a quadratic form in the pose.

A pair (x_i, y_i) with the metric W_i and the weight w_i costs ``w_i (T x~_i - y_i)^T W_i (T x~_i - y_i)``, with
``x~ = (x, 1)``. In homogeneous coordinates that is ``x~^T T~^T Q_i T~ x~`` with the 4x4 quadric

    Q_i = w_i [W_i, -W_i y_i; -(W_i y_i)^T, y_i^T W_i y_i],

so the energy of all pairs is a quadratic form in the entries of T~, with the matrix ``sum_i Q_i (x) x~_i x~_i^T``.
Every distance is a choice of W_i; nothing after this pass sees a point again.

Poses are (B, 3, 4) here, always float64, and the points are first moved to their centroids and divided by one scale,
so that a cloud in map coordinates keeps its digits and rotations compare with translations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from p2plane.solve.inputs import Pairs, explain_not_finite, on_device_of, read

POINTS_AT_ONCE = 1 << 14  # what the pass allocates stays near the cache, however many points there are
# Powers of the scale in the units of what the form is a form in: the entries of T, row by row, and the one.
_POWERS = torch.tensor([0.0 if k % 4 == 3 else -1.0 for k in range(13)], dtype=torch.float64)
# (13, 2) from the form's diagonal to the traces of what belongs to R, and to t; the one belongs to neither.
_TRACES = torch.stack([_POWERS == -1, _POWERS == 0], dim=1).double() * (torch.arange(13) < 12)[:, None]
ROWS_APART = 8  # more than the points of a row: a power of two apart, all rows would share a few lines of the cache


class Frame(NamedTuple):
    """Local coordinates: ``x' = (x - source_center) / scale``, ``y' = (y - target_center) / scale``."""

    source_center: Tensor  # (B, 3, 1)
    target_center: Tensor  # (B, 3, 1)
    scale: Tensor  # (B, 1, 1)

    def unscaled(self, T: Tensor) -> Tensor:
        """(B, 3, 4) a local pose, or a direction of one, between the centred clouds before they are scaled."""
        return torch.cat([T[:, :, :3], self.scale * T[:, :, 3:]], dim=-1)

    def centered(self, T: Tensor) -> Tensor:
        """(B, 3, 4) pose between the centred clouds before they are scaled, of a pose between the caller's."""
        R, t = T.split_with_sizes((3, 1), dim=-1)
        return torch.cat([R, self._between_centers(R, t)], dim=-1)

    def centered_direction(self, V: Tensor) -> Tensor:
        """(B, 3, 4) the same for a direction in which the pose moves."""
        by_R, by_t = V.split_with_sizes((3, 1), dim=-1)
        return torch.cat([by_R, torch.baddbmm(by_t, by_R, self.source_center)], dim=-1)

    def to_local(self, T: Tensor) -> Tensor:
        """(B, 3, 4) pose between the local frames, of a pose between the caller's."""
        R, t = T.split_with_sizes((3, 1), dim=-1)
        return torch.cat([R, self._between_centers(R, t) / self.scale], dim=-1)

    def to_caller(self, T: Tensor) -> Tensor:
        """(B, 3, 4) pose between the caller's frames, of a pose between the local ones."""
        R, t = T.split_with_sizes((3, 1), dim=-1)
        t = torch.addcmul(self.target_center, self.scale, t)
        return torch.cat([R, torch.baddbmm(t, R, self.source_center, alpha=-1)], dim=-1)

    def _between_centers(self, R: Tensor, t: Tensor) -> Tensor:
        """(B, 3, 1) from the target's centre to where the caller's pose takes the source's."""
        return torch.baddbmm(t - self.target_center, R, self.source_center)


class Channels(NamedTuple):
    """The pairs as a pass reads them: channel first, absent points zero."""

    source: Tensor  # (B, 3, N)
    target: Tensor  # (B, 3, N)
    metric: Tensor | None  # None, (B, 3, N) or (B, 3, 3, N)
    weights: Tensor  # (B, 1, N)

    def double(self) -> Channels:
        """The same in float64."""
        metric = None if self.metric is None else self.metric.double()
        return Channels(self.source.double(), self.target.double(), metric, self.weights.double())


@dataclass(frozen=True)
class Quadratic:
    """Mean energy in local units, ``E(T) / (total scale^2) = g~^T M g~`` with ``g~ = (T row by row, 1)``."""

    matrix: Tensor  # (B, 13, 13), symmetric: H of the 12 entries of T, -c beside it, d in the corner
    total: Tensor  # (B, 1, 1) sum of w_i trace(W_i), the sum of the weights for planes; one where that is zero
    frame: Frame

    def value_and_gradient(self, T: Tensor) -> tuple[Tensor, Tensor]:
        """(B,) values at local poses, and half the derivative by the entries of T, (B, 3, 4)."""
        extended = pad(T.reshape(-1, 12, 1), (0, 0, 0, 1), value=1.0)
        product = torch.bmm(self.matrix, extended)  # (B, 13, 1)
        return torch.bmm(extended.mT, product).view(-1), product[:, :12].reshape(-1, 3, 4)

    def energy(self, T: Tensor) -> Tensor:
        """(B,) energies, in the caller's units, of local poses."""
        return self.value_and_gradient(T)[0].clamp_min(0) * self.unit().flatten()

    def take(self, index: Tensor) -> Quadratic:
        """Some pairs of the batch."""
        return Quadratic(self.matrix[index], self.total[index], Frame(*(part[index] for part in self.frame)))

    def unit(self) -> Tensor:
        """(B, 1, 1) what one unit of the mean, local energy is in the caller's units."""
        return self.total * self.frame.scale.square()


def summarize(pairs: Pairs, frame: Frame | None = None) -> Quadratic:
    """The quadratic form of a set of pairs.

    Args:
        pairs: matched pairs with their metric.
        frame: the local frame; chosen from the pairs when it is None: weighted centroids, and the root mean square
            radius of the source, each point weighted by w_i trace(W_i).

    Gradient: source, target, metric, weights, at a fixed frame.
    """
    channels = as_channels(pairs)
    centers = _centers(channels) if frame is None else frame
    form = _quadratic_form(channels, centers)
    # gradient stops here: the optimal pose does not depend on the units it is computed in
    traces = (form.detach().diagonal(dim1=1, dim2=2) @ on_device_of(form, _TRACES)).view(-1, 2, 1, 1)
    squares, total = traces.unbind(1)  # (B, 1, 1) each, sum of w tr(W) |x|^2 and of w tr(W)
    total = total + (total == 0)
    if frame is None:
        frame = centers._replace(scale=_scale(squares / total, centers, pairs.source.dtype))
    # The form of E / scale^2 in (R, t / scale, 1): only what belongs to t keeps its size.
    units = torch.pow(frame.scale, on_device_of(form, _POWERS))  # (B, 1, 13)
    matrix = form * (units.mT * (units / total))
    if not math.isfinite(read(matrix.sum()) or 0):
        explain_not_finite(pairs)
    return Quadratic(matrix, total, frame)


def as_channels(pairs: Pairs, dtype: torch.dtype | None = None) -> Channels:
    """The pairs channel first, in the caller's coordinates, and as precise as the points unless a dtype is given."""
    metric, dtype = pairs.metric, dtype or pairs.precision
    if metric is not None and metric.ndim == 3:
        metric = _channel_first(metric, pairs.mask, dtype)
    elif metric is not None:
        metric = _channel_first(metric.flatten(2), pairs.mask, dtype).unflatten(1, (3, 3))
        metric = (metric + metric.transpose(1, 2)) / 2  # the energy sees no more of W_i than this
    source, target = _channel_first(pairs.source, pairs.mask, dtype), _channel_first(pairs.target, pairs.mask, dtype)
    return Channels(source, target, metric, _weights(pairs, dtype))


def centered(channels: Channels, frame: Frame) -> Channels:
    """The same pairs with both clouds moved to the centres of the frame, not yet divided by its scale."""
    dtype = channels.source.dtype
    source, target = channels.source - frame.source_center.to(dtype), channels.target - frame.target_center.to(dtype)
    return Channels(source, target, channels.metric, channels.weights)


def _centers(channels: Channels) -> Frame:
    """The weighted centroids, with the scale one; as precise as the points, so that they can be subtracted in that."""
    # gradient stops here: the optimal pose does not depend on the coordinates it is computed in
    source, target, weights = (part.detach() for part in (channels.source, channels.target, channels.weights))
    total = weights.sum(-1, keepdim=True)  # (B, 1, 1)
    shares = weights / (total + (total == 0))
    # A sum, not a product of matrices, which autocast would round.
    source_center, target_center = ((points * shares).sum(-1, keepdim=True).double() for points in (source, target))
    return Frame(source_center, target_center, torch.ones_like(source_center[:, :1]))


def _scale(mean_square: Tensor, centers: Frame, dtype: torch.dtype) -> Tensor:
    """(B, 1, 1) root mean square radius of the source; one where all points coincide, up to rounding."""
    radius = mean_square.sqrt()
    rounding = 8 * torch.finfo(dtype).eps * torch.linalg.vector_norm(centers.source_center, dim=1, keepdim=True)
    return torch.where(radius > rounding, radius, 1.0)


def _weights(pairs: Pairs, dtype: torch.dtype) -> Tensor:
    """(B, 1, N) weights; zero where the mask says absent."""
    weights = pairs.weights
    if weights is None:
        weights = torch.ones(pairs.source.shape[:2], dtype=dtype, device=pairs.source.device)
    return _channel_first(weights[:, :, None], pairs.mask, dtype)


def apply_metric(metric: Tensor | None, vectors: Tensor) -> Tensor:
    """``W_i v_i`` (B, 3, N) for vectors (B, 3, N) and a metric as in `Channels`."""
    if metric is None:
        return vectors
    if metric.ndim == 3:
        return metric * (metric * vectors).sum(1, keepdim=True)
    return (metric * vectors[:, None]).sum(2)


def _channel_first(rows: Tensor, mask: Tensor | None, dtype: torch.dtype) -> Tensor:
    """(B, C, N) from rows (B, N, C); zero where the mask says absent, whatever stood there."""
    channels = rows.mT.to(dtype, memory_format=torch.contiguous_format).contiguous()
    return channels if mask is None else channels.masked_fill(~mask[:, None], 0.0)


def _quadratic_form(channels: Channels, frame: Frame) -> Tensor:
    """(B, 13, 13) sum over the pairs about the centres of the frame, a block of points at a time."""
    batch, _, count = channels.source.shape
    is_planes = channels.metric is not None and channels.metric.ndim == 3
    form = _form_of_planes if is_planes and _may_write_in_place() else _form_of_quadrics
    if batch * count <= POINTS_AT_ONCE:
        return form(channels, frame)
    size = max(1, POINTS_AT_ONCE // count)
    some = [slice(i, i + size) for i in range(0, batch, size)]
    return torch.cat([_sum_over_blocks(form, _part(channels, i), Frame(*(part[i] for part in frame))) for i in some])


def _may_write_in_place() -> bool:
    """Whether nobody follows the operations: a gradient, a compiler, or vmap and its like."""
    is_followed = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    return not is_followed and not torch.is_grad_enabled()


def _sum_over_blocks(form: Callable[[Channels, Frame], Tensor], channels: Channels, frame: Frame) -> Tensor:
    starts = range(0, channels.source.shape[-1], POINTS_AT_ONCE)
    return sum(form(_part(channels, (..., slice(i, i + POINTS_AT_ONCE))), frame) for i in starts)  # type: ignore[return-value]


def _part(channels: Channels, where: Any) -> Channels:
    source, target, metric, weights = channels
    return Channels(source[where], target[where], None if metric is None else metric[where], weights[where])


def _form_of_planes(channels: Channels, frame: Frame) -> Tensor:
    """A plane's distance is linear in the pose, ``n.(T x~ - y) = (n (x) x~, -n.y) . g~``: a sum of squared rows.

    About the centres, the precision of the points is enough for the rows; the sum has twice that. Without a gradient,
    as the root of a weight has none at zero.
    """
    source, target, normals, weights = channels
    assert normals is not None
    rows = _rows_apart(source, source.dtype)
    by_pose = rows[:, :12].unflatten(1, (3, 4))  # (B, 3, 4, N)
    normals = torch.mul(normals, weights.sqrt(), out=by_pose[:, :, 3])
    source = source - frame.source_center.to(source.dtype)
    torch.mul(normals[:, :, None], source[:, None], out=by_pose[:, :, :3])
    offsets = (frame.target_center.to(target.dtype) - target).mul_(normals)
    torch.sum(offsets, dim=1, out=rows[:, 12])
    if rows.dtype != torch.float64:
        rows = _rows_apart(source, torch.float64).copy_(rows)
    return torch.bmm(rows, rows.mT)


def _rows_apart(points: Tensor, dtype: torch.dtype) -> Tensor:
    """(B, 13, N) room for thirteen rows of as many entries as there are points (B, 3, N)."""
    batch, _, count = points.shape
    return torch.empty(batch, 13, count + ROWS_APART, dtype=dtype, device=points.device)[:, :, :count]


def _form_of_quadrics(channels: Channels, frame: Frame) -> Tensor:
    """``sum_i Q_i (x) x~_i x~_i^T`` as one product, (16 x N) by (N x 16); T~'s last row is (0, 0, 0, 1)."""
    source, target, metric, weights = centered(channels, frame).double()
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
