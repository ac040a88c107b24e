"""Neighbourhoods as RPMNet sees them: who is in them, point pair features, and how a small network runs over them.

The published network fills up each neighbourhood with copies of its centre, and keeps all edges (B, C, N, 64) for every
layer. Here a copy stands once, with the number of copies as its multiplicity, and edges come in blocks that fit into
the cache: what a layer makes of a block is used and forgotten, and made again for the gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

CHANNELS = {"xyz": 3, "dxyz": 3, "ppf": 4}
"""Raw channels of an edge in the published order: the centre, neighbour minus centre, the point pair feature."""


def first_within(points: Tensor, radius: float, count: int, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The first others within the radius of each point, in the order of the cloud: not the nearest ones.

    Args:
        points: (B, N, 3).
        radius: distances up to this one count.
        count: the most to take.
        mask: (B, N) bool, true where a point is present; absent ones are nobody's neighbours and have none.

    Returns:
        (B, N, count) indices, with the point itself in empty places, and (B, N) how many places are not.

    Gradient: none; indices are discrete.
    """
    batch, size, _ = points.shape
    points = points.detach()  # gradient stops here: indices are discrete
    numbers = torch.arange(size, device=points.device)
    indices = numbers[:, None].repeat(batch, 1, count)  # (B, N, count)
    counts = torch.zeros(batch, size, dtype=torch.int64, device=points.device)
    for b, rows in _parts(batch, size, room=2**20 if points.device.type == "cpu" else 2**25):
        distances = torch.cdist(points[b, rows], points[b], compute_mode="donot_use_mm_for_euclid_dist")
        near = (distances <= radius) & (numbers[rows, None] != numbers)
        if mask is not None:
            near &= mask[b] & mask[b, rows, None]
        row, column = near.nonzero(as_tuple=True)  # in ascending order
        found = near.sum(-1)
        place = torch.arange(len(row), device=row.device) - (found.cumsum(0) - found)[row]
        kept = place < count
        indices[b, rows][row[kept], place[kept]] = column[kept]
        counts[b, rows] = found.clamp(max=count)
    return indices, counts


def point_pair_features(points: Tensor, normals: Tensor, others: Tensor, other_normals: Tensor) -> Tensor:
    """(..., 4) ``angle(n, d), angle(m, d), angle(n, m), |d|`` of points with normals n and others with normals m.

    ``d = others - points``. An angle with a vector of length zero is zero. Rigid motions of everything change nothing.

    Args:
        points, normals, others, other_normals: (..., 3).

    Gradient: all arguments; zero where a vector vanishes or two are parallel.

    Reference: Drost et al., "Model globally, match locally", CVPR 2010, equation 1.
    """
    d = others - points
    angles = [_angle(normals, d), _angle(other_normals, d), _angle(normals, other_normals)]
    return torch.stack([*angles, torch.linalg.vector_norm(d, dim=-1)], dim=-1)


def _angle(a: Tensor, b: Tensor) -> Tensor:
    sine, cosine = torch.linalg.vector_norm(torch.linalg.cross(a, b), dim=-1), (a * b).sum(-1)
    nowhere = (sine == 0) & (cosine == 0)  # where atan2 has a value, but no derivative
    return torch.atan2(sine, cosine.masked_fill(nowhere, 1.0))


class Block(NamedTuple):
    """Some points of one cloud with all their edges, as many for each point."""

    cloud: int
    points: slice  # of `Edges.points`
    edges: slice  # of `Edges.raw`
    width: int  # edges of each point


@dataclass(frozen=True)
class Edges:
    """All neighbourhoods of a batch of clouds. Points with like numbers of neighbours stand together, in blocks."""

    raw: Tensor  # (E, C + 1) raw channels, and a one
    multiplicities: Tensor  # (E, 1) how often the edge counts
    points: Tensor  # (P,) the present points, as rows of all clouds under each other, in the order of the blocks
    blocks: tuple[Block, ...]
    features: tuple[str, ...]  # which raw channels there are
    shape: tuple[int, int]  # B clouds of N points

    def moments(self) -> Tensor:
        """(B, C + 1, C + 1) sums of ``raw raw^T`` over the edges of each cloud, in float64."""
        counts = torch.zeros(self.shape[0], dtype=torch.int64)
        for block in self.blocks:
            counts[block.cloud] += block.edges.stop - block.edges.start
        clouds = zip(self.raw.split(counts.tolist()), self.multiplicities.split(counts.tolist()), strict=True)
        return torch.stack([(raw * times).double().mT @ raw.double() for raw, times in clouds])

    def motion(self, T_b_a: Tensor) -> Tensor:
        """(B, C + 1, C + 1) what rigid motions (B, 4, 4) do to raw channels and a one: it is linear.

        The neighbourhoods and point pair features of a cloud stay as they are when it moves.
        """
        width = self.raw.shape[1]
        motion = torch.eye(width, dtype=T_b_a.dtype, device=T_b_a.device).repeat(len(T_b_a), 1, 1)
        first = 0
        for name in self.features:
            rows = slice(first, first + 3)
            if name != "ppf":
                motion[:, rows, rows] = T_b_a[:, :3, :3]
            if name == "xyz":
                motion[:, rows, -1] = T_b_a[:, :3, 3]
            first += CHANNELS[name]
        return motion

    def to_clouds(self, values: Tensor) -> Tensor:
        """(B, N, C) what belongs to the points, from (P, C) in the order of the blocks; zero where one is absent."""
        batch, size = self.shape
        flat = values.new_zeros(batch * size, values.shape[-1])
        return flat.index_copy(0, self.points, values).view(batch, size, -1)


def edges_within(
    points: Tensor,
    normals: Tensor | None,
    radius: float,
    count: int,
    mask: Tensor | None = None,
    features: Sequence[str] = tuple(CHANNELS),
) -> Edges:
    """The neighbourhoods of `first_within`, with raw channels.

    Args:
        points: (B, N, 3).
        normals: (B, N, 3), needed for "ppf".
        radius, count, mask: as in `first_within`.
        features: names out of `CHANNELS`; their order does not matter.

    Gradient: points and normals, to `Edges.raw`.
    """
    indices, counts = first_within(points, radius, count, mask)
    rows, blocks = _in_blocks(counts, count, mask)
    parts = [_block_edges(rows[block.points], block, indices, counts) for block in blocks]
    centers, neighbors, multiplicities = (torch.cat(part) for part in zip(*parts, strict=True))
    chosen = tuple(name for name in CHANNELS if name in features)
    raw = _raw_channels(points, normals, centers, neighbors, chosen)
    return Edges(raw, multiplicities.to(points.dtype), rows, blocks, chosen, (points.shape[0], points.shape[1]))


def _in_blocks(counts: Tensor, most: int, mask: Tensor | None) -> tuple[Tensor, tuple[Block, ...]]:
    """(P,) rows of the present points, those of a cloud sorted by their numbers of neighbours, and blocks of them."""
    batch, size = counts.shape
    points_in_block = max(1, 4096 // most) if counts.device.type == "cpu" else size
    rows: list[Tensor] = []
    blocks: list[Block] = []
    points = edges = 0
    for cloud in range(batch):
        present = torch.arange(size, device=counts.device) if mask is None else mask[cloud].nonzero().squeeze(1)
        for part in present[counts[cloud, present].argsort(descending=True)].split(points_in_block):
            width = min(most, int(counts[cloud, part[0]]) + 1)  # room for a copy of the centre, unless none is needed
            blocks.append(
                Block(cloud, slice(points, points + len(part)), slice(edges, edges + len(part) * width), width)
            )
            rows.append(part + cloud * size)
            points, edges = points + len(part), edges + len(part) * width
    return torch.cat(rows), tuple(blocks)


def _block_edges(rows: Tensor, block: Block, indices: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Centres (e,), neighbours (e,) and multiplicities (e, 1) of the edges of a block; rows are of all clouds."""
    size, most = indices.shape[1:]
    neighbors = indices.view(-1, most)[rows, : block.width] + block.cloud * size  # (n, width)
    taken = counts.view(-1)[rows, None]  # (n, 1)
    copies = (most - taken).double() / (block.width - taken).clamp(min=1)  # shared by the places that are left
    places = torch.arange(block.width, device=rows.device)
    multiplicities = torch.where(places < taken, 1.0, copies)
    return rows.repeat_interleave(block.width), neighbors.view(-1), multiplicities.view(-1, 1)


def _raw_channels(
    points: Tensor, normals: Tensor | None, centers: Tensor, neighbors: Tensor, features: tuple[str, ...]
) -> Tensor:
    """(E, C + 1) raw channels of edges, and a one; centres and neighbours (E,) are rows of all clouds."""
    x, y = (points.reshape(-1, 3).index_select(0, rows) for rows in (centers, neighbors))
    channels = [x] if "xyz" in features else []
    if "dxyz" in features:
        channels.append(y - x)
    if "ppf" in features:
        assert normals is not None
        n, m = (normals.reshape(-1, 3).index_select(0, rows) for rows in (centers, neighbors))
        channels.append(point_pair_features(x, n, y, m))
    return torch.cat([*channels, torch.ones_like(x[:, :1])], dim=-1)


def _parts(batch: int, size: int, room: int) -> Iterator[tuple[int, slice]]:
    """Clouds and slices of their rows, so that the distances to all points of a cloud fit into the room."""
    rows = max(1, room // size)
    for cloud in range(batch):
        for start in range(0, size, rows):
            yield cloud, slice(start, min(size, start + rows))


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


def largest(values: Tensor) -> tuple[Tensor, Tensor]:
    """(n, C) maxima over the second dimension of (n, k, C), and (n, C) where they are; much faster than torch.max."""
    # As an image (n, C, k, 1) whose channels are last in memory.
    image = values[:, :, None].permute(0, 3, 1, 2)
    maxima, places = F.max_pool2d(image, (values.shape[1], 1), return_indices=True)
    return maxima.flatten(1), places.flatten(1)


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
