"""DGCNN, the feature extractor of DCP (one graph) and of PRNet (a new graph before each layer).

An edge carries the features of a neighbour followed by those of the point itself. Each layer is a linear map, BatchNorm
and a (leaky) ReLU on all edges, and the largest value among a point's edges is a feature of the point.

There are twenty times more edges than points, and moving them through memory is what takes time. So:

- The mean and variance of ``W h`` are ``W m`` and ``diag(W C W^T)``, with m and C those of h. BatchNorm is known before
  the map is applied, and is a scale and a shift of it. What follows is increasing, and the maximum can come first.
- With a new graph for each layer, ``W (neighbour, point) = W_n neighbour + W_p point``: maps of points, not of edges.
- With one graph, edges are worked on in blocks that fit the cache, and are computed again in backward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from p2plane.geometry.neighbors import gather, knn


class Statistics(NamedTuple):
    """What BatchNorm knows of a batch."""

    mean: Tensor  # (C,)
    variance: Tensor  # (C,) unbiased


class DGCNN(nn.Module):
    """Features of the points of clouds.

    Args:
        in_features: 3 for points, 6 for points and normals.
        widths: of the layers on edges.
        out_features: of the last layer, on points.
        neighbors: of each point, itself among them; all points where a cloud has fewer.
        slope: of the ReLU on its left side.
    """

    pairs_everywhere = False
    """Whether every layer, and not only the first, takes the features of two points."""

    def __init__(
        self,
        in_features: int = 3,
        widths: Sequence[int] = (64, 64, 128, 256),
        out_features: int = 512,
        neighbors: int = 20,
        slope: float = 0.0,
    ) -> None:
        super().__init__()
        if not 1 <= neighbors <= 255:
            raise ValueError(f"neighbors must be between 1 and 255, got {neighbors}")
        self.neighbors, self.slope, self.depth = neighbors, slope, len(widths)
        ends = 2 if self.pairs_everywhere else 1
        inputs = [2 * in_features, *(ends * width for width in widths[:-1]), sum(widths)]
        # The names are the published ones, where the maps are convolutions with kernels of one pixel.
        for i, (before, after) in enumerate(zip(inputs, (*widths, out_features), strict=True), start=1):
            self.add_module(f"conv{i}", nn.Linear(before, after, bias=False))
            self.add_module(f"bn{i}", nn.BatchNorm1d(after))

    def forward(self, points: Tensor, normals: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """(B, N, C) features. In training, by the statistics of this batch, which are remembered as BatchNorm does.

        Args:
            points: (B, N, 3).
            normals: (B, N, 3) for six features.
            mask: (B, N) bool, true where a point is present. Absent ones are nobody's neighbours and in no statistic;
                what comes back for them is finite, and means nothing.

        Gradient: points, normals, and the weights; of first order only.
        """
        features, statistics = self.embed(points, normals, mask)
        self.remember(statistics)
        return features

    def embed(
        self, points: Tensor, normals: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, list[Statistics]]:
        """As `forward`, but what there is to remember is handed back; that is nothing in evaluation."""
        features = points if normals is None else torch.cat([points, normals], dim=-1)
        # The first graph is one of positions, whatever else the features hold.
        graph = _graph(points, self.neighbors, mask)
        pooled, statistics = self._pooled(features.flatten(0, 1), graph, mask)
        last, of_last = _on_points(pooled, *self._layer(self.depth), mask)
        return self._activated(last).unflatten(0, points.shape[:2]), [*statistics, *of_last]

    def remember(self, statistics: Sequence[Statistics]) -> None:
        """Move the running statistics towards those of a batch."""
        for i, (mean, variance) in enumerate(statistics):
            norm = self._layer(i)[1]
            running = _running(norm)
            running.mean.lerp_(mean.to(running.mean), norm.momentum or 0.0)
            running.variance.lerp_(variance.to(running.variance), norm.momentum or 0.0)
            assert norm.num_batches_tracked is not None
            norm.num_batches_tracked.add_(1)

    def _pooled(self, features: Tensor, graph: _Graph, mask: Tensor | None) -> tuple[Tensor, list[Statistics]]:
        """(P, sum of widths) maxima of all layers on edges, from features (P, D) of points."""
        raise NotImplementedError

    def _layer(self, i: int) -> tuple[Tensor, nn.BatchNorm1d]:
        return getattr(self, f"conv{i + 1}").weight, getattr(self, f"bn{i + 1}")

    def _activated(self, values: Tensor) -> Tensor:
        return F.relu_(values) if self.slope == 0 else F.leaky_relu_(values, self.slope)


class StaticDGCNN(DGCNN):
    """DGCNN as in DCP: one graph, and each layer goes on with the edges of the one before."""

    def _pooled(self, features: Tensor, graph: _Graph, mask: Tensor | None) -> tuple[Tensor, list[Statistics]]:
        layers = [self._layer(i) for i in range(self.depth)]
        running = None if self.training else [_running(norm) for _, norm in layers]
        parameters = [tensor for weight, norm in layers for tensor in (weight, norm.weight, norm.bias)]
        pooled, *flat = _EdgeLayers.apply(features, graph, running, layers[0][1].eps, *parameters)
        return pooled, [Statistics(*pair) for pair in zip(flat[::2], flat[1::2], strict=True)]


class DynamicDGCNN(DGCNN):
    """DGCNN as in PRNet: each layer takes the maxima of the one before, and the graph of their neighbours."""

    pairs_everywhere = True

    def _pooled(self, features: Tensor, graph: _Graph, mask: Tensor | None) -> tuple[Tensor, list[Statistics]]:
        outputs: list[Tensor] = []
        statistics = []
        for i in range(self.depth):
            if i > 0:
                graph = _graph(features.view(*graph.shape, -1), self.neighbors, mask)
            weight, norm = self._layer(i)
            seen: Statistics | _Moments = _running(norm)
            if self.training:
                seen = _pair_moments(features, graph)
                statistics.append(_of_map(weight.detach(), seen, unbiased=True))
            scale, shift = _scale_and_shift(_Layer(weight, norm.weight, norm.bias), seen, norm.eps)
            of_neighbor, of_point = (scale[:, None] * weight).chunk(2, dim=1)
            strongest: Tensor = _NeighborMax.apply(F.linear(features, of_neighbor), graph.rows)
            features = self._activated(F.linear(features, of_point, shift).add_(strongest))
            outputs.append(features)
        return torch.cat(outputs, dim=-1), [Statistics(*(each.detach() for each in pair)) for pair in statistics]


class _Graph(NamedTuple):
    """The neighbours of all P points of a batch of clouds, which stand one after the other."""

    rows: Tensor  # (P, k)
    found: Tensor | None  # (P, k) bool, false where there is no such neighbour and the nearest is repeated
    shape: tuple[int, int]  # B, N

    @property
    def edges(self) -> int:
        return self.rows.numel() if self.found is None else int(self.found.sum())


def _graph(points: Tensor, neighbors: int, mask: Tensor | None) -> _Graph:
    points = points.detach()  # gradient stops here: neighbours are discrete
    batch, count = points.shape[:2]
    nearest = knn(points, points, min(neighbors, count), mask=mask, query_mask=mask)
    first = count * torch.arange(batch, device=points.device)
    rows = (nearest.indices + first[:, None, None]).flatten(0, 1)
    return _Graph(rows, None if mask is None else nearest.found.flatten(0, 1), (batch, count))


class _Layer(NamedTuple):
    weight: Tensor  # (C, D) of the map
    gain: Tensor  # (C,) of the BatchNorm
    bias: Tensor  # (C,)


class _Moments(NamedTuple):
    """Mean and covariance of what goes into a layer, over all edges."""

    mean: Tensor  # (D,)
    covariance: Tensor  # (D, D), biased
    edges: int


def _of_map(weight: Tensor, seen: _Moments, unbiased: bool = False) -> Statistics:
    """Those of ``W h``, from the moments of h."""
    variance = ((weight @ seen.covariance) * weight).sum(1).clamp_min(0)  # rounding must not make it negative
    return Statistics(weight @ seen.mean, variance * (seen.edges / max(1, seen.edges - 1)) if unbiased else variance)


def _running(norm: nn.BatchNorm1d) -> Statistics:
    assert norm.running_mean is not None and norm.running_var is not None
    return Statistics(norm.running_mean, norm.running_var)


def _scale_and_shift(layer: _Layer, seen: Statistics | _Moments, eps: float) -> tuple[Tensor, Tensor]:
    """(C,) and (C,): the layer before its ReLU is ``scale * W h + shift``."""
    mean, variance = _of_map(layer.weight, seen) if isinstance(seen, _Moments) else seen
    scale = layer.gain * (variance + eps).rsqrt()
    return scale, layer.bias - mean * scale


def _on_points(
    features: Tensor, weight: Tensor, norm: nn.BatchNorm1d, mask: Tensor | None
) -> tuple[Tensor, list[Statistics]]:
    """(P, C) map and BatchNorm of features (P, D) of points, of which (B, N) are present."""
    if not norm.training:
        scale, shift = _scale_and_shift(_Layer(weight, norm.weight, norm.bias), _running(norm), norm.eps)
        return F.linear(features, scale[:, None] * weight, shift), []
    mapped = F.linear(features, weight)
    values = mapped if mask is None else mapped[mask.flatten()]
    # With a momentum of one, the running statistics are those of the batch.
    own = Statistics(torch.zeros_like(norm.bias).detach(), torch.zeros_like(norm.bias).detach())
    values = F.batch_norm(values, own.mean, own.variance, norm.weight, norm.bias, True, 1.0, norm.eps)
    if mask is not None:
        values = torch.zeros_like(mapped).masked_scatter(mask.flatten()[:, None], values)
    return values, [own]


def _blocks(points: int, room_for_each: int, device: torch.device) -> Iterator[slice]:
    """Slices of points, so that a block fits into the cache of a CPU, and keeps a GPU busy."""
    step = max(1, (2**20 if device.type == "cpu" else 2**26) // max(1, room_for_each))
    return (slice(start, min(points, start + step)) for start in range(0, points, step))


def _largest(values: Tensor) -> tuple[Tensor, Tensor]:
    """(P, C) the largest of values (P, k, C), and which of the k it was.

    torch's own maximum with indices takes ten times as long (2.13).
    """
    largest = values.amax(dim=1)
    is_largest = torch.eq(values, largest[:, None], out=torch.empty_like(values))
    slots = torch.arange(values.shape[1], dtype=values.dtype, device=values.device)
    return largest, is_largest.mul_(slots[:, None]).amax(dim=1).to(torch.uint8)


# A new graph for each layer: everything is a matter of points.


def _pair_moments(features: Tensor, graph: _Graph) -> _Moments:
    """Moments of the pairs (neighbour, point) of features (P, D), over all edges.

    ``sum_ij x_j x_i^T = sum_i (sum_j x_j) x_i^T``: the pairs themselves are not needed.
    """
    sightings, neighbors = _degrees(graph, features)
    center = neighbors @ features.detach() / graph.edges  # far from the origin digits would cancel
    features = features - center
    sums: Tensor = _NeighborSum.apply(features, graph)
    mean = torch.cat([sightings @ features, neighbors @ features]) / graph.edges
    first, second = (features * sightings[:, None]).mT @ features, (features * neighbors[:, None]).mT @ features
    across = sums.mT @ features
    products = torch.cat([torch.cat([first, across], dim=1), torch.cat([across.mT, second], dim=1)]) / graph.edges
    return _Moments(mean + center.repeat(2), products - mean[:, None] * mean, graph.edges)


def _degrees(graph: _Graph, like: Tensor) -> tuple[Tensor, Tensor]:
    """(P,) whose neighbour a point is how many times, and how many neighbours it has."""
    points, k = graph.rows.shape
    seen = graph.rows.flatten() if graph.found is None else graph.rows[graph.found]
    neighbors = like.new_full((points,), k) if graph.found is None else graph.found.sum(1).to(like)
    return torch.bincount(seen, minlength=points).to(like), neighbors


class _NeighborSum(torch.autograd.Function):
    """(P, D) sums of the features of each point's neighbours."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, graph: _Graph) -> Tensor:  # type: ignore[override]
        ctx.graph = graph
        if graph.found is None:
            return F.embedding_bag(graph.rows, features, mode="sum")
        return _bag_sums(features, graph.rows[graph.found], graph.found.sum(1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        rows, found, _ = ctx.graph
        points = torch.arange(len(rows), device=rows.device)[:, None].expand_as(rows)
        seen, seeing = (rows.flatten(), points.flatten()) if found is None else (rows[found], points[found])
        sightings = torch.bincount(seen, minlength=len(rows))
        return _bag_sums(gradient.contiguous(), seeing[seen.argsort()], sightings), None


def _bag_sums(features: Tensor, rows: Tensor, counts: Tensor) -> Tensor:
    """(P, D) sums of the listed rows of the features, the first so many for the first point and so on."""
    starts = F.pad(counts.cumsum(0)[:-1], (1, 0))
    return F.embedding_bag(rows, features, starts, mode="sum")


class _NeighborMax(torch.autograd.Function):
    """(P, C) largest features among each point's neighbours."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, rows: Tensor) -> Tensor:  # type: ignore[override]
        largest = torch.empty_like(features)
        slots = torch.empty_like(features, dtype=torch.uint8)
        for part in _blocks(len(rows), rows.shape[1] * features.shape[1], features.device):
            largest[part], slots[part] = _largest(gather(features, rows[part]))
        ctx.save_for_backward(rows, slots)
        return largest

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        rows, slots = ctx.saved_tensors
        return torch.zeros_like(gradient).scatter_add_(0, rows.gather(1, slots.long()), gradient), None


# One graph for all layers: edges in blocks.


class _EdgeLayers(torch.autograd.Function):
    """(P, sum of C) maxima of all layers; then, in training, the batch's mean and variance of each layer.

    With ``H_0`` the edges (E, 2 D), a layer is ``H_i = relu(H_{i-1} (scale W)^T + shift)``, its scale and shift a
    function of the moments of ``H_{i-1}``. So the gradient comes to ``H_{i-1}`` through the map and through the moments.
    For backward only the maxima and their places are kept.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, points: Tensor, graph: _Graph, running: list[Statistics] | None, eps: float, *parameters: Tensor
    ) -> tuple[Tensor, ...]:
        layers = [_Layer(*parameters[i : i + 3]) for i in range(0, len(parameters), 3)]
        ctx.blocks = _Blocks(graph, max(len(layer.weight) for layer in layers))
        edges = ctx.blocks.pairs(points)
        peaks: list[_Peaks] = []
        batch: list[Tensor] = []
        ctx.folds = []
        for i, layer in enumerate(layers):
            seen = ctx.blocks.moments(edges) if running is None else running[i]
            if isinstance(seen, _Moments):
                batch += _of_map(layer.weight, seen, unbiased=True)
            ctx.folds.append(_Fold(layer, seen, eps))
            peaks.append(ctx.blocks.run(edges, ctx.folds[i], is_last=i + 1 == len(layers)))
        pooled = torch.cat([values for values, _ in peaks], dim=1)
        ctx.save_for_backward(points, pooled, *(slots for _, slots in peaks))
        ctx.mark_non_differentiable(*batch)
        return pooled, *batch

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        points, pooled, *slots = ctx.saved_tensors
        blocks, folds = ctx.blocks, ctx.folds
        gradient = torch.ops.aten.threshold_backward(gradient, pooled, 0)
        peaks = [*map(_Peaks, gradient.split([len(fold.shift) for fold in folds], dim=1), slots)]
        edges = [blocks.pairs(points)]
        for fold in folds[:-1]:
            edges.append([fold.activated(block) for block in edges[-1]])
        answers: list[Tensor | None] = []
        above: _Above | None = None
        for fold, peak in zip(reversed(folds), reversed(peaks), strict=True):
            if above is not None:
                above.outputs = edges.pop()
            product, total, below = blocks.run_back(edges[-1], fold, peak, above)
            of_layer, slope, offset = fold.backward(product, total)
            answers = [*of_layer, *answers]
            above = _Above(below, slope, offset, blocks.found)
        of_points = None
        if ctx.needs_input_grad[0] and above is not None:
            above.outputs = edges.pop()
            of_points = blocks.to_points(above)
        return of_points, None, None, None, *answers


class _Peaks(NamedTuple):
    """Maxima over the edges of each point, or their gradients."""

    values: Tensor  # (P, C)
    slots: Tensor  # (P, C) uint8: at which edge


class _Fold:
    """A layer and its BatchNorm as one map, ``H weight^T + shift``."""

    def __init__(self, layer: _Layer, seen: Statistics | _Moments, eps: float) -> None:
        self.layer, self.seen, self.eps = layer, seen, eps
        self.scale, self.shift = _scale_and_shift(layer, seen, eps)
        self.weight = self.scale[:, None] * layer.weight

    def activated(self, edges: Tensor, out: Tensor | None = None) -> Tensor:
        """(e, C) outputs for inputs (e, D)."""
        return torch.mm(edges, self.weight.mT, out=out).add_(self.shift).relu_()

    def backward(self, product: Tensor, total: Tensor) -> tuple[list[Tensor], Tensor | None, Tensor | None]:
        """Gradients of the layer, and the slope and offset of what comes to the inputs H through their moments.

        Args:
            product: (C, D) ``sum_e g_e h_e^T`` over the edges, g the gradient of the map's result.
            total: (C,) ``sum_e g_e``.
        """
        seen = self.seen
        moments = seen[:2] if isinstance(seen, _Moments) else ()
        leaves = [each.detach().requires_grad_() for each in (*self.layer, *moments)]
        with torch.enable_grad():
            if isinstance(seen, _Moments):
                seen = _Moments(leaves[3], leaves[4], seen.edges)
            results = _scale_and_shift(_Layer(*leaves[:3]), seen, self.eps)
        above = (product * self.layer.weight).sum(1), total
        of_weight, *others = torch.autograd.grad(results, leaves, above, allow_unused=True, materialize_grads=True)
        of_layer = [of_weight + self.scale[:, None] * product, *others[:2]]
        if not isinstance(self.seen, _Moments):
            return of_layer, None, None
        # The covariance is the mean of (h - m) (h - m)^T, and does not change with m to first order.
        of_mean, of_covariance = others[2:]
        slope = (of_covariance + of_covariance.mT) / self.seen.edges
        return of_layer, slope, of_mean / self.seen.edges - self.seen.mean @ slope


@dataclass
class _Above:
    """The gradient that comes from a layer to its inputs H, the outputs of the one below: ``edges + H slope + offset``.

    What has been used is given back: these are large.
    """

    edges: list[Tensor]  # (e, C) through the map
    slope: Tensor | None  # (C, C) through the moments
    offset: Tensor | None  # (C,)
    found: list[Tensor] | None  # (e, 1) zero where an edge is in no moment
    outputs: list[Tensor] = field(default_factory=list)  # (e, C) H

    def take(self, i: int) -> tuple[Tensor, Tensor]:
        """The gradient of a block, and its outputs; only once."""
        edges, outputs = self.edges[i], self.outputs[i]
        self.edges[i] = self.outputs[i] = edges.new_empty(0)
        if self.slope is None or self.offset is None:
            return edges, outputs
        if self.found is None:
            return edges.addmm_(outputs, self.slope).add_(self.offset), outputs
        return edges.addcmul_(torch.addmm(self.offset, outputs, self.slope), self.found[i]), outputs


class _Blocks:
    """All edges of a graph as a list of blocks (e, C), each with the edges of a slice of the points."""

    def __init__(self, graph: _Graph, width: int) -> None:
        self.graph, self.k = graph, graph.rows.shape[1]
        self.parts = [*_blocks(len(graph.rows), self.k * width, graph.rows.device)]
        self.found: list[Tensor] | None = None

    def pairs(self, points: Tensor) -> list[Tensor]:
        """(e, 2 D) features of the neighbour, then of the point, from features (P, D)."""
        found = self.graph.found
        self.found = None if found is None else [found[part].flatten()[:, None].to(points) for part in self.parts]
        return [
            torch.cat(
                [gather(points, self.graph.rows[part]), points[part, None].expand(-1, self.k, -1)], dim=-1
            ).flatten(0, 1)
            for part in self.parts
        ]

    def moments(self, edges: list[Tensor]) -> _Moments:
        """Of edges (e, D)."""
        count = self.graph.edges
        weights = [None] * len(edges) if self.found is None else self.found
        sums = [block.sum(0) if w is None else w[:, 0] @ block for block, w in zip(edges, weights, strict=True)]
        mean = torch.stack(sums).sum(0) / count
        second = torch.zeros_like(mean).diag()
        for block, w in zip(edges, weights, strict=True):
            centered = block - mean
            second += (centered if w is None else centered * w).mT @ centered
        return _Moments(mean, second / count, count)

    def run(self, edges: list[Tensor], fold: _Fold, is_last: bool) -> _Peaks:
        """Maxima of a layer; its outputs take the place of its inputs, unless it is the last."""
        count, width = len(self.graph.rows), len(fold.shift)
        peaks = _Peaks(edges[0].new_empty(count, width), edges[0].new_empty(count, width, dtype=torch.uint8))
        outputs = edges[0].new_empty(count * self.k, 0 if is_last else width).split([len(block) for block in edges])
        for i, (part, block) in enumerate(zip(self.parts, edges, strict=True)):
            values = block @ fold.weight.mT if is_last else fold.activated(block, out=outputs[i])
            peaks.values[part], peaks.slots[part] = _largest(values.unflatten(0, (-1, self.k)))
        if is_last:
            peaks.values.add_(fold.shift).relu_()
        else:
            edges[:] = outputs
        return peaks

    def run_back(
        self, edges: list[Tensor], fold: _Fold, peaks: _Peaks, above: _Above | None
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """What `_Fold.backward` takes, and the gradients (e, D) that come to the inputs of a layer through its map."""
        product, total, below = torch.zeros_like(fold.weight), torch.zeros_like(fold.shift), []
        for i, (part, block) in enumerate(zip(self.parts, edges, strict=True)):
            gradient, outputs = (block.new_zeros(len(block), len(total)), None) if above is None else above.take(i)
            at = peaks.slots[part, None].long()
            gradient.unflatten(0, (-1, self.k)).scatter_add_(1, at, peaks.values[part, None])
            if outputs is not None:
                gradient = torch.ops.aten.threshold_backward(gradient, outputs, 0)
            product += gradient.mT @ block
            total += gradient.sum(0)
            below.append(gradient @ fold.weight)
        return product, total, below

    def to_points(self, above: _Above) -> Tensor:
        """(P, D) gradients of the points, from those of the edges."""
        gradient = torch.cat([above.take(i)[0] for i in range(len(self.parts))])
        of_neighbors, of_points = gradient.chunk(2, dim=1)
        of_points = of_points.unflatten(0, self.graph.rows.shape).sum(1)
        return of_points.index_add_(0, self.graph.rows.flatten(), of_neighbors)
