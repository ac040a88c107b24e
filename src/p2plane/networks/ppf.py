"""Neighbourhoods as RPMNet sees them: who is in them, and point pair features.

The published network fills up each neighbourhood with copies of its centre. Here a copy stands once, with the number of
copies as its multiplicity, and edges come in blocks that fit into the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

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
    if torch.compiler.is_compiling() and mask is None:
        return _first_of_all(points, radius, count)
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
        kept = (place < count).nonzero().squeeze(1)
        flat = indices[b, rows].view(-1)
        flat[(row * count + place)[kept]] = column[kept]
        counts[b, rows] = found.clamp(max=count)
    return indices, counts


def _first_of_all(points: Tensor, radius: float, count: int) -> tuple[Tensor, Tensor]:
    """The same for clouds (B, N, 3) that are complete, all at once, so that no shape depends on values."""
    size = points.shape[1]
    numbers = torch.arange(size, device=points.device)
    apart = (points[:, :, None] - points[:, None]).square().sum(-1).sqrt()
    near = (apart <= radius) & (numbers[:, None] != numbers)
    first = torch.where(near, numbers, size).topk(min(count, size), largest=False, sorted=True).values
    itself = numbers[:, None].expand(points.shape[0], -1, count)
    taken = torch.where(first < size, first, itself[..., : first.shape[-1]])
    return torch.cat([taken, itself[..., first.shape[-1] :]], dim=-1), near.sum(-1).clamp(max=count)


def point_pair_features(points: Tensor, normals: Tensor, others: Tensor, other_normals: Tensor) -> Tensor:
    """(..., 4) ``angle(n, d), angle(m, d), angle(n, m), |d|`` of points with normals n and others with normals m.

    ``d = others - points``. An angle with a vector of length zero is zero. Rigid motions of everything change nothing.

    Args:
        points, normals, others, other_normals: (..., 3); fastest where coordinates are apart in memory.

    Gradient: all arguments; zero where a vector vanishes or two are parallel.

    Reference: Drost et al., "Model globally, match locally", CVPR 2010, equation 1.
    """
    d = others - points
    angles = [_angle(normals, d), _angle(other_normals, d), _angle(normals, other_normals)]
    return torch.stack([*angles, _length(d.unbind(-1))]).movedim(0, -1)


def _angle(a: Tensor, b: Tensor) -> Tensor:
    (a1, a2, a3), (b1, b2, b3) = a.unbind(-1), b.unbind(-1)
    sine = _length((a2 * b3 - a3 * b2, a3 * b1 - a1 * b3, a1 * b2 - a2 * b1))
    cosine = a1 * b1 + a2 * b2 + a3 * b3
    nowhere = (sine == 0) & (cosine == 0)  # where atan2 has a value, but no derivative
    # abs: ONNX has no atan2, and what stands for it there takes -pi, where torch takes pi, for opposite vectors
    return torch.atan2(sine, cosine.masked_fill(nowhere, 1.0)).abs()


def _length(components: Sequence[Tensor]) -> Tensor:
    x, y, z = components
    squares = x * x + y * y + z * z
    positive = squares > 0  # the root has no slope at zero
    return torch.where(positive, torch.where(positive, squares, 1.0).sqrt(), 0.0)


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
    weighted: Tensor  # (E, C + 1) the same times the root of the multiplicity
    multiplicities: Tensor  # (E, 1) how often the edge counts
    points: Tensor  # (P,) the present points, as rows of all clouds under each other, in the order of the blocks
    blocks: tuple[Block, ...]
    features: tuple[str, ...]  # which raw channels there are
    shape: tuple[int, int]  # B clouds of N points

    @cached_property
    def moments(self) -> Tensor:
        """(B, C + 1, C + 1) sums of ``raw raw^T`` over the edges of each cloud, in float64."""
        counts = [0] * self.shape[0]
        for block in self.blocks:
            counts[block.cloud] += block.edges.stop - block.edges.start
        clouds = (weighted.double() for weighted in self.weighted.split(counts))
        return torch.stack([weighted.mT @ weighted for weighted in clouds])

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
    weighted = raw * multiplicities.sqrt().to(raw.dtype)
    shape = points.shape[0], points.shape[1]
    return Edges(raw, weighted, multiplicities.to(raw.dtype), rows, blocks, chosen, shape)


def _in_blocks(counts: Tensor, most: int, mask: Tensor | None) -> tuple[Tensor, tuple[Block, ...]]:
    """(P,) rows of the present points, those of a cloud sorted by their numbers of neighbours, and blocks of them."""
    batch, size = counts.shape
    if torch.compiler.is_compiling() and mask is None:
        whole = (
            Block(i, slice(i * size, (i + 1) * size), slice(i * size * most, (i + 1) * size * most), most)
            for i in range(batch)
        )
        return torch.arange(batch * size, device=counts.device), tuple(whole)
    points_in_block = max(1, 2048 // most) if counts.device.type == "cpu" else size
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
    x, y = _gathered(points, centers, neighbors)
    channels = [x] if "xyz" in features else []
    if "dxyz" in features:
        channels.append(y - x)
    if "ppf" in features:
        assert normals is not None
        n, m = _gathered(normals, centers, neighbors)
        channels.append(point_pair_features(x.mT, n.mT, y.mT, m.mT).mT)
    return torch.cat([*channels, torch.ones_like(x[:1])]).mT.contiguous()


def _gathered(values: Tensor, *rows: Tensor) -> list[Tensor]:
    """(3, E) some rows of all clouds (B, N, 3) under each other, each coordinate in one piece."""
    coordinates = values.reshape(-1, 3).mT.contiguous()
    return [coordinates.index_select(1, each) for each in rows]


def _parts(batch: int, size: int, room: int) -> Iterator[tuple[int, slice]]:
    """Clouds and slices of their rows, so that the distances to all points of a cloud fit into the room."""
    rows = max(1, room // size)
    for cloud in range(batch):
        for start in range(0, size, rows):
            yield cloud, slice(start, min(size, start + rows))
