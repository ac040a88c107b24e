"""The layers of RPMNet on edges: what a layer makes of a block of edges is used and forgotten, and made again for the
gradient.

With h the hidden values of an edge, ``h_1 = relu(first raw)`` and ``h_2 = relu(second (h_1, 1))``.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from p2plane.networks.group_norm import scale_and_shift
from p2plane.networks.maxima import largest
from p2plane.networks.ppf import Block, Edges


def hidden_moments(edges: Edges, first: Tensor) -> Tensor:
    """(B, H + 1, H + 1) sums of ``(h_1, 1) (h_1, 1)^T`` over the edges of each cloud.

    Args:
        first: (B, H, C + 1) a map for each cloud.

    Gradient: `edges.weighted`, first.
    """
    moments: Tensor = _HiddenMoments.apply(edges.weighted, first, edges)
    return moments


def pooled_layer(edges: Edges, first: Tensor, second: Tensor, third: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(P, O) maxima of ``third h_2`` over the edges of each point.

    And (B, O) the sum of it and the sum of its squares over the edges of each cloud.

    Args:
        first: (B, H, C + 1) a map for each cloud.
        second: (B, G, H + 1) likewise.
        third: (O, G) one map for all.

    Gradient: `edges.raw`, first, second, third.
    """
    maxima, sums, squares = _PooledLayer.apply(edges.raw, first, second, third, edges)
    return maxima, sums, squares


@torch.no_grad()
def pooled_at_once(
    edges: Edges, first: Tensor, second: nn.Linear, norm: nn.GroupNorm, third: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`pooled_layer` after the second layer and its norm, whose statistics are taken on the way.

    Without a gradient it is cheaper to keep what the second layer makes of a cloud until its norm is known, than to
    find that out before from moments.

    Args:
        first: (B, H, C + 1) a map for each cloud.
        second: of H channels to as many.
        norm: after it.
        third: (O, H) one map for all.

    Gradient: none.
    """
    maxima = first.new_empty(len(edges.points), len(third))
    sums, squares = (first.new_zeros(len(first), 1, len(third)) for _ in range(2))
    before, heights = (_room(edges, width) for width in (first.shape[1], len(third)))
    kept = first.new_empty(0, second.out_features)
    for cloud, members in groupby(edges.blocks, key=lambda block: block.cloud):
        blocks = list(members)
        start, stop = blocks[0].edges.start, blocks[-1].edges.stop
        if len(kept) < stop - start:
            kept = first.new_empty(stop - start, second.out_features)
        of_second, squared_second = (first.new_zeros(1, second.out_features) for _ in range(2))
        for block in blocks:
            rows, times = block.edges, edges.multiplicities[block.edges]
            hidden = _first_layer(edges.raw[rows], first[cloud], before)
            values = torch.mm(hidden, second.weight.mT, out=kept[rows.start - start : rows.stop - start])
            of_second.addmm_(times.mT, values)
            squared_second.addmm_(times.mT, torch.mul(values, values, out=before[: len(hidden)]))
        count = edges.multiplicities[start:stop].sum(0)
        scale, shift = scale_and_shift(second, norm, of_second, squared_second, count)
        of_hidden = torch.zeros_like(of_second)
        for block in blocks:
            rows, times = block.edges, edges.multiplicities[block.edges]
            values = kept[rows.start - start : rows.stop - start]
            hidden = torch.addcmul(shift, values, scale, out=values).relu_()
            of_hidden.addmm_(times.mT, hidden)
            height = torch.mm(hidden, third.mT, out=heights[: len(hidden)])
            torch.amax(height.view(-1, block.width, len(third)), 1, out=maxima[block.points])
            squares[cloud].addmm_(times.mT, height.square_())
        sums[cloud] = of_hidden @ third.mT
    return maxima, sums.squeeze(1), squares.squeeze(1)


class _HiddenMoments(torch.autograd.Function):
    """Raw channels come times the roots of multiplicities. These pass the ReLU, and meet in the products."""

    @staticmethod
    def forward(ctx, weighted, first, edges) -> Any:  # type: ignore[no-untyped-def, override]
        batch, width, _ = first.shape
        moments = weighted.new_zeros(batch, width + 1, width + 1)
        room = _room(edges, width)
        for block in edges.blocks:
            raw, cloud = weighted[block.edges], block.cloud
            hidden = _first_layer(raw, first[cloud], room)
            moments[cloud, :-1, :-1].addmm_(hidden.mT, hidden)
            moments[cloud, -1:, :-1].addmm_(raw[:, -1:].mT, hidden)
            moments[cloud, -1, -1] += raw[:, -1] @ raw[:, -1]
        moments[:, :-1, -1] = moments[:, -1, :-1]
        ctx.save_for_backward(weighted, first)
        ctx.edges = edges
        return moments

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, by_moments) -> Any:  # type: ignore[no-untyped-def, override]
        weighted, first = ctx.saved_tensors
        by_raw = torch.empty_like(weighted) if ctx.needs_input_grad[0] else None
        by_first = torch.zeros_like(first)
        slopes = (by_moments + by_moments.mT)[..., :-1].contiguous()  # (B, H + 1, H)
        room, above = (_room(ctx.edges, first.shape[1]) for _ in range(2))
        for block in ctx.edges.blocks:
            raw, cloud = weighted[block.edges], block.cloud
            hidden = _first_layer(raw, first[cloud], room)
            by_hidden = torch.mm(hidden, slopes[cloud, :-1], out=above[: len(raw)])
            by_hidden.addcmul_(raw[:, -1:], slopes[cloud, -1])
            _first_layer_back(_through_relu(by_hidden, hidden), block, weighted, first, by_raw, by_first)
        return by_raw, by_first, None


class _PooledLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, raw, first, second, third, edges) -> Any:  # type: ignore[no-untyped-def, override]
        trained = any(ctx.needs_input_grad)
        batch, width = second.shape[:2]
        maxima = raw.new_empty(len(edges.points), len(third))
        winners = torch.empty_like(maxima, dtype=torch.int16) if trained else None  # places among the edges of a point
        sums, moments = raw.new_zeros(batch, 1, width), raw.new_zeros(batch, width, width)  # of h_2, and h_2 h_2^T
        squares = raw.new_zeros(batch, 1, len(third))
        before, room, weighted, heights = (_room(edges, w) for w in (first.shape[1], width, width, len(third)))
        for block in edges.blocks:
            cloud, times, points = block.cloud, edges.multiplicities[block.edges], block.points
            hidden = _second_layer(_first_layer(raw[block.edges], first[cloud], before), second[cloud], room)
            sums[cloud].addmm_(times.mT, hidden)
            height = torch.mm(hidden, third.mT, out=heights[: len(hidden)])
            of_points = height.view(-1, block.width, len(third))
            if winners is None:
                torch.amax(of_points, 1, out=maxima[points])
                squares[cloud].addmm_(times.mT, height.square_())
            else:  # the moments serve for the gradient as well
                maxima[points], winners[points] = largest(of_points)
                moments[cloud].addmm_(hidden.mT, torch.mul(hidden, times, out=weighted[: len(hidden)]))
        if winners is not None:
            squares = ((third @ moments) * third).sum(-1)
            ctx.save_for_backward(raw, first, second, third, winners, moments, sums)
            ctx.edges = edges
        return maxima, (sums @ third.mT).squeeze(1), squares.view(batch, len(third))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, by_maxima, by_sums, by_squares) -> Any:  # type: ignore[no-untyped-def, override]
        raw, first, second, third, winners, moments, sums = ctx.saved_tensors
        by_raw = torch.empty_like(raw) if ctx.needs_input_grad[0] else None
        by_first, by_second = torch.zeros_like(first), torch.zeros_like(second)
        # With a = by_sums and b = by_squares, all edges have the gradient a + 2 b third h, besides that of the maxima.
        by_third = by_sums.mT @ sums.squeeze(1) + 2 * (by_squares[..., None] * (third @ moments)).sum(0)
        by_sums, by_squares = by_sums @ third, 2 * third.mT @ (by_squares[..., None] * third)  # (B, G), (B, G, G)
        chosen = _Chosen(winners, by_maxima)
        widths = first.shape[1], second.shape[1], second.shape[1], first.shape[1]
        room_1, room_2, above_2, above_1 = (_room(ctx.edges, width) for width in widths)
        for block in ctx.edges.blocks:
            rows, cloud = block.edges, block.cloud
            hidden_1 = _first_layer(raw[rows], first[cloud], room_1)
            hidden_2 = _second_layer(hidden_1, second[cloud], room_2)
            by_hidden = torch.mm(hidden_2, by_squares[cloud], out=above_2[: len(hidden_2)])
            by_hidden.add_(by_sums[cloud]).mul_(ctx.edges.multiplicities[rows])
            by_hidden += chosen.back_to_edges(block, third)
            by_third += chosen.sums_over_points(block, hidden_2)
            _through_relu(by_hidden, hidden_2)
            by_second[cloud, :, :-1].addmm_(by_hidden.mT, hidden_1)
            by_second[cloud, :, -1] += by_hidden.sum(0)
            by_hidden = torch.mm(by_hidden, second[cloud, :, :-1], out=above_1[: len(hidden_1)])
            _first_layer_back(_through_relu(by_hidden, hidden_1), block, raw, first, by_raw, by_first)
        return by_raw, by_first, by_second, by_third, None


def _room(edges: Edges, width: int) -> Tensor:
    """(e, width) where all blocks have their values one after the other, as new memory is slow."""
    longest = max((block.edges.stop - block.edges.start for block in edges.blocks), default=0)
    return edges.raw.new_empty(longest, width)


def _first_layer(raw: Tensor, first: Tensor, room: Tensor) -> Tensor:
    return torch.mm(raw, first.mT, out=room[: len(raw)]).relu_()


def _second_layer(hidden: Tensor, second: Tensor, room: Tensor) -> Tensor:
    bias = second[:, -1].contiguous()  # a column would be added slowly
    return torch.mm(hidden, second[:, :-1].mT, out=room[: len(hidden)]).add_(bias).relu_()


def _first_layer_back(
    by_hidden: Tensor, block: Block, raw: Tensor, first: Tensor, by_raw: Tensor | None, by_first: Tensor
) -> None:
    """Add to the gradients of the first layer what comes from a block."""
    by_first[block.cloud] += (raw[block.edges].mT @ by_hidden).mT  # many times faster than by_hidden.mT @ raw
    if by_raw is not None:
        torch.mm(by_hidden, first[block.cloud], out=by_raw[block.edges])


def _through_relu(gradient: Tensor, values: Tensor) -> Tensor:
    """The gradient, in its place, where the values are positive."""
    return torch.ops.aten.threshold_backward.grad_input(gradient, values, 0, grad_input=gradient)


class _Chosen:
    """The gradient of maxima, sorted by the edges that have won them: a matrix (E, O) with P O entries."""

    def __init__(self, winners: Tensor, gradient: Tensor) -> None:
        self.winners, self.gradient = winners, gradient.contiguous()
        self.channels = _argsort(winners)  # (P, O)
        self.values = self.gradient.gather(1, self.channels)

    def back_to_edges(self, block: Block, third: Tensor) -> Tensor:
        """(e, G) for each edge the sum of rows of third (O, G) whose maxima it has won."""
        counts = torch.bincount(self._edges(block).view(-1), minlength=block.edges.stop - block.edges.start)
        offsets = counts.cumsum(0) - counts  # where the entries of an edge begin
        channels, values = (each[block.points].view(-1) for each in (self.channels, self.values))
        return F.embedding_bag(channels, third, offsets, mode="sum", per_sample_weights=values)

    def sums_over_points(self, block: Block, hidden: Tensor) -> Tensor:
        """(O, G) for each maximum the sum of the winners' hidden values (e, G)."""
        winners, values = self._edges(block).mT.contiguous(), self.gradient[block.points].mT.contiguous()
        return F.embedding_bag(winners, hidden, mode="sum", per_sample_weights=values)

    def _edges(self, block: Block) -> Tensor:
        """(n, O) the winners' places among all edges of a block."""
        winners = self.winners[block.points].int()
        starts = torch.arange(0, len(winners) * block.width, block.width, dtype=torch.int32, device=winners.device)
        return winners + starts[:, None]


def _argsort(places: Tensor) -> Tensor:
    """(P, O) the order of each row of small numbers; on a CPU by NumPy's radix sort, many times faster than torch's."""
    if places.device.type != "cpu":
        return places.argsort(dim=-1)
    return torch.from_numpy(np.argsort(places.numpy(), axis=-1, kind="stable"))
