"""Layers that go on with the edges of one graph, in blocks that fit the cache, computed again in backward."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from p2plane.geometry.neighbors import gather
from p2plane.networks.batch_norm import Layer, Moments, Statistics, scale_and_shift, statistics_of_map
from p2plane.networks.graph import Graph, blocks_of
from p2plane.networks.maxima import largest


class EdgeLayers(torch.autograd.Function):
    """(P, sum of C) maxima of all layers; then, in training, the batch's mean and variance of each layer.

    With ``H_0`` the edges (E, 2 D), a layer is ``H_i = relu(H_{i-1} (scale W)^T + shift)``, its scale and shift a
    function of the moments of ``H_{i-1}``. So the gradient comes to ``H_{i-1}`` both through the map and through them.
    For backward only the maxima and their places are kept.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, points: Tensor, graph: Graph, running: list[Statistics] | None, eps: float, *parameters: Tensor
    ) -> tuple[Tensor, ...]:
        layers = [Layer(*parameters[i : i + 3]) for i in range(0, len(parameters), 3)]
        ctx.blocks = blocks = _Blocks(graph, max(len(layer.weight) for layer in layers))
        edges = blocks.pairs(points)
        peaks: list[_Peaks] = []
        batch: list[Tensor] = []
        ctx.folds = []
        sums = _Sums(blocks)
        if running is None:
            sums.add_all(edges)
        for i, layer in enumerate(layers):
            seen = sums.moments() if running is None else running[i]
            if isinstance(seen, Moments):
                batch += statistics_of_map(layer.weight, seen, unbiased=True)
            ctx.folds.append(_Fold(layer, seen, eps))
            sums = _Sums(blocks)
            peaks.append(blocks.run(edges, ctx.folds[i], i + 1 == len(layers), sums if running is None else None))
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
        for i in reversed(range(len(folds))):
            if above is not None:
                above.outputs = edges.pop()
            needs_below = i > 0 or ctx.needs_input_grad[0]
            product, total, below = blocks.run_back(edges[-1], folds[i], peaks[i], above, needs_below)
            of_layer, slope, offset = folds[i].backward(product, total)
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

    def __init__(self, layer: Layer, seen: Statistics | Moments, eps: float) -> None:
        self.layer, self.seen, self.eps = layer, seen, eps
        self.scale, self.shift = scale_and_shift(layer, seen, eps)
        self.weight = self.scale[:, None] * layer.weight

    def activated(self, edges: Tensor) -> Tensor:
        """(e, C) outputs for inputs (e, D)."""
        return (edges @ self.weight.mT).add_(self.shift).relu_()

    def backward(self, product: Tensor, total: Tensor) -> tuple[list[Tensor], Tensor | None, Tensor | None]:
        """Gradients of the layer, and the slope and offset of what comes to the inputs H through their moments.

        Args:
            product: (C, D) ``sum_e g_e h_e^T`` over the edges, g the gradient of the map's result.
            total: (C,) ``sum_e g_e``.
        """
        seen = self.seen
        moments = seen[:2] if isinstance(seen, Moments) else ()
        leaves = [each.detach().requires_grad_() for each in (*self.layer, *moments)]
        with torch.enable_grad():
            if isinstance(seen, Moments):
                seen = Moments(leaves[3], leaves[4], seen.edges)
            results = scale_and_shift(Layer(*leaves[:3]), seen, self.eps)
        above = (product * self.layer.weight).sum(1), total
        of_weight, *others = torch.autograd.grad(results, leaves, above, allow_unused=True, materialize_grads=True)
        of_layer = [of_weight + self.scale[:, None] * product, *others[:2]]
        if not isinstance(self.seen, Moments):
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

    def __init__(self, graph: Graph, width: int) -> None:
        self.graph, self.k = graph, graph.rows.shape[1]
        self.parts = [*blocks_of(len(graph.rows), self.k * width, graph.rows.device)]
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

    def run(self, edges: list[Tensor], fold: _Fold, is_last: bool, sums: _Sums | None) -> _Peaks:
        """Maxima of a layer; its outputs take the place of its inputs, unless it is the last, and are added to sums.

        That is done while a block is in the cache. Blocks have memory of their own: what is as large as all of them
        would be new memory from the system every time, which is slow.
        """
        count, width = len(self.graph.rows), len(fold.shift)
        peaks = _Peaks(edges[0].new_empty(count, width), edges[0].new_empty(count, width, dtype=torch.uint8))
        for i, (part, block) in enumerate(zip(self.parts, edges, strict=True)):
            values = block @ fold.weight.mT if is_last else fold.activated(block)
            peaks.values[part], peaks.slots[part] = largest(values.unflatten(0, (-1, self.k)))
            if not is_last:
                edges[i] = values
                if sums is not None:
                    sums.add(i, values)
        if is_last:
            peaks.values.add_(fold.shift).relu_()
        return peaks

    def run_back(
        self, edges: list[Tensor], fold: _Fold, peaks: _Peaks, above: _Above | None, needs_below: bool
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """What `_Fold.backward` takes, and the gradients (e, D) that come to the inputs of a layer through its map."""
        product, total, below = torch.zeros_like(fold.weight.mT), torch.zeros_like(fold.shift), []
        room = edges[0].new_empty(len(edges[0]), len(total) if above is None else 0)
        for i, (part, block) in enumerate(zip(self.parts, edges, strict=True)):
            gradient, outputs = (room[: len(block)].zero_(), None) if above is None else above.take(i)
            at = peaks.slots[part, None].long()
            gradient.unflatten(0, (-1, self.k)).scatter_add_(1, at, peaks.values[part, None])
            if outputs is not None:
                torch.ops.aten.threshold_backward.grad_input(gradient, outputs, 0, grad_input=gradient)
            product += block.mT @ gradient
            total += gradient.sum(0)
            if needs_below:
                below.append(gradient @ fold.weight)
        return product.mT, total, below

    def to_points(self, above: _Above) -> Tensor:
        """(P, D) gradients of the points, from those of the edges."""
        gradient = torch.cat([above.take(i)[0] for i in range(len(self.parts))])
        of_neighbors, of_points = gradient.chunk(2, dim=1)
        of_points = of_points.unflatten(0, self.graph.rows.shape).sum(1)
        return of_points.index_add_(0, self.graph.rows.flatten(), of_neighbors)


class _Sums:
    """First and second moments of edges, block by block, about the mean of the first block: nothing cancels."""

    def __init__(self, blocks: _Blocks) -> None:
        self._found, self._count = blocks.found, blocks.graph.edges

    def add(self, i: int, block: Tensor) -> None:
        """Add the edges (e, C) of a block; the first one has number zero."""
        if i == 0:
            self._about = block.mean(0)
            self._room = torch.empty_like(block)
            self._first = torch.zeros_like(self._about)
            self._second = self._first.diag()
        centered = torch.sub(block, self._about, out=self._room[: len(block)])
        weighted = centered if self._found is None else centered * self._found[i]
        self._first += weighted.sum(0)
        self._second += centered.mT @ weighted

    def add_all(self, edges: list[Tensor]) -> None:
        """Add all blocks."""
        for i, block in enumerate(edges):
            self.add(i, block)

    def moments(self) -> Moments:
        """Of all edges that were added."""
        first = self._first / self._count
        return Moments(self._about + first, self._second / self._count - torch.outer(first, first), self._count)
