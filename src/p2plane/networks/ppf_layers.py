"""The layers of RPMNet on edges: what a layer makes of a block of edges is used and forgotten, and made again for the
gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from p2plane.networks.maxima import largest
from p2plane.networks.ppf import Block, Edges


def second_layer(edges: Edges, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(E, G) ``second relu(first raw)``, and (B, G) its sum and the sum of its squares over the edges of each cloud.

    Args:
        first: (B, H, C + 1) a map for each cloud.
        second: (G, H) one map for all.

    Gradient: `edges.raw`, first, second.
    """
    values, sums, squares = _SecondLayer.apply(edges.raw, first, second, edges)
    return values, sums, squares


def pooled_layer(
    edges: Edges, values: Tensor, scale: Tensor, shift: Tensor, third: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """(P, O) maxima of ``third relu(scale values + shift)`` over the edges of each point.

    And (B, O) the sum of it and the sum of its squares over the edges of each cloud.

    Args:
        values: (E, G) as from `second_layer`.
        scale, shift: (B, G) of each cloud.
        third: (O, G) one map for all.

    Gradient: values, scale, shift, third.
    """
    maxima, sums, squares = _PooledLayer.apply(values, scale, shift, third, edges)
    return maxima, sums, squares


class _SecondLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, raw, first, second, edges) -> Any:  # type: ignore[no-untyped-def, override]
        values = raw.new_empty(len(raw), len(second))
        sums, squares = (raw.new_zeros(len(first), 1, len(second)) for _ in range(2))
        for block in edges.blocks:
            times = edges.multiplicities[block.edges].mT
            hidden = (raw[block.edges] @ first[block.cloud].mT).relu_()
            part = torch.mm(hidden, second.mT, out=values[block.edges])
            sums[block.cloud].addmm_(times, part)
            squares[block.cloud].addmm_(times, part.square())
        ctx.save_for_backward(raw, first, second, values)
        ctx.edges = edges
        return values, sums.squeeze(1), squares.squeeze(1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, by_values, by_sums, by_squares) -> Any:  # type: ignore[no-untyped-def, override]
        raw, first, second, values = ctx.saved_tensors
        by_raw = torch.empty_like(raw) if ctx.needs_input_grad[0] else None
        by_first, by_second = torch.zeros_like(first), torch.zeros_like(second)
        for block in ctx.edges.blocks:
            rows, cloud = block.edges, block.cloud
            hidden = (raw[rows] @ first[cloud].mT).relu_()
            by_part = torch.addcmul(by_sums[cloud], values[rows], by_squares[cloud], value=2)
            by_part = torch.addcmul(by_values[rows], by_part, ctx.edges.multiplicities[rows])
            by_second.addmm_(by_part.mT, hidden)
            by_hidden = _through_relu(by_part @ second, hidden)
            by_first[cloud] += (raw[rows].mT @ by_hidden).mT  # many times faster than by_hidden.mT @ raw
            if by_raw is not None:
                torch.mm(by_hidden, first[cloud], out=by_raw[rows])
        return by_raw, by_first, by_second, None


class _PooledLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values, scale, shift, third, edges) -> Any:  # type: ignore[no-untyped-def, override]
        maxima = values.new_empty(len(edges.points), len(third))
        winners = torch.empty_like(maxima, dtype=torch.int32)  # places among the edges of a point
        moments = values.new_zeros(len(scale), scale.shape[1], scale.shape[1])  # sums of h h^T
        sums, squares = values.new_zeros(len(scale), 1, scale.shape[1]), values.new_zeros(len(scale), 1, len(third))
        for block in edges.blocks:
            cloud, times = block.cloud, edges.multiplicities[block.edges]
            hidden = torch.addcmul(shift[cloud], values[block.edges], scale[cloud]).relu_()
            sums[cloud].addmm_(times.mT, hidden)
            heights = hidden @ third.mT
            maxima[block.points], winners[block.points] = largest(heights.view(-1, block.width, len(third)))
            if any(ctx.needs_input_grad):  # the moments serve for the gradient as well
                moments[cloud].addmm_(hidden.mT, hidden * times)
            else:
                squares[cloud].addmm_(times.mT, heights.square_())
        if any(ctx.needs_input_grad):
            squares = ((third @ moments) * third).sum(-1)
        ctx.save_for_backward(values, scale, shift, third, winners, moments, sums)
        ctx.edges = edges
        return maxima, (sums @ third.mT).squeeze(1), squares.view(len(scale), len(third))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, by_maxima, by_sums, by_squares) -> Any:  # type: ignore[no-untyped-def, override]
        values, scale, shift, third, winners, moments, sums = ctx.saved_tensors
        by_values, by_scale, by_shift = (torch.empty_like(values), torch.zeros_like(scale), torch.zeros_like(shift))
        # With a = by_sums and b = by_squares, all edges have the gradient a + 2 b third h, besides that of the maxima.
        by_third = by_sums.mT @ sums.squeeze(1) + 2 * (by_squares[..., None] * (third @ moments)).sum(0)
        by_sums, by_squares = by_sums @ third, 2 * third.mT @ (by_squares[..., None] * third)  # (B, G), (B, G, G)
        chosen = _Chosen(ctx.edges, winners, by_maxima)
        for block in ctx.edges.blocks:
            rows, cloud = block.edges, block.cloud
            hidden = torch.addcmul(shift[cloud], values[rows], scale[cloud]).relu_()
            by_hidden = torch.addmm(by_sums[cloud], hidden, by_squares[cloud]).mul_(ctx.edges.multiplicities[rows])
            by_hidden += chosen.back_to_edges(block, third)
            by_third += chosen.sums_over_points(block, hidden)
            by_hidden = _through_relu(by_hidden, hidden)
            by_shift[cloud] += by_hidden.sum(0)
            by_scale[cloud] += (by_hidden * values[rows]).sum(0)
            torch.mul(by_hidden, scale[cloud], out=by_values[rows])
        return by_values, by_scale, by_shift, by_third, None


class _Chosen:
    """The gradient of maxima, sorted by the edges that have won them: a matrix (E, O) with P O entries."""

    def __init__(self, edges: Edges, winners: Tensor, gradient: Tensor) -> None:
        starts = torch.cat(
            [torch.arange(b.edges.start, b.edges.stop, b.width, device=winners.device) for b in edges.blocks]
        )
        self.edges = winners + starts[:, None]  # (P, O)
        self.gradient = gradient
        sorted_edges, order = self.edges.view(-1).sort()
        self.channels = order % winners.shape[1]
        self.values = gradient.reshape(-1)[order]
        bounds = torch.arange(len(edges.raw) + 1, device=winners.device)
        self.offsets = torch.searchsorted(sorted_edges, bounds)  # where the entries of an edge begin

    def back_to_edges(self, block: Block, third: Tensor) -> Tensor:
        """(e, G) for each edge the sum of rows of third (O, G) whose maxima it has won."""
        entries = slice(block.points.start * len(third), block.points.stop * len(third))
        offsets = self.offsets[block.edges] - entries.start
        return F.embedding_bag(
            self.channels[entries], third, offsets, mode="sum", per_sample_weights=self.values[entries]
        )

    def sums_over_points(self, block: Block, hidden: Tensor) -> Tensor:
        """(O, G) for each maximum the sum of the winners' hidden values (e, G)."""
        winners = (self.edges[block.points] - block.edges.start).mT.contiguous()
        return F.embedding_bag(
            winners, hidden, mode="sum", per_sample_weights=self.gradient[block.points].mT.contiguous()
        )


def _through_relu(gradient: Tensor, values: Tensor) -> Tensor:
    return torch.ops.aten.threshold_backward(gradient, values, 0)
