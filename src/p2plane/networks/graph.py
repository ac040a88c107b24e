"""Graphs of neighbours over a batch of clouds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from p2plane.geometry.neighbors import knn


class Graph(NamedTuple):
    """The neighbours of all P points of a batch of clouds, which stand one after the other."""

    rows: Tensor  # (P, k)
    found: Tensor | None  # (P, k) bool, false where there is no such neighbour and the nearest is repeated
    shape: tuple[int, int]  # B, N

    @property
    def edges(self) -> int:
        return self.rows.numel() if self.found is None else int(self.found.sum())


def neighbor_graph(points: Tensor, neighbors: int, mask: Tensor | None) -> Graph:
    points = points.detach()  # gradient stops here: neighbours are discrete
    batch, count = points.shape[:2]
    nearest = knn(points, points, min(neighbors, count), mask=mask, query_mask=mask)
    first = count * torch.arange(batch, device=points.device)
    rows = (nearest.indices + first[:, None, None]).flatten(0, 1)
    return Graph(rows, None if mask is None else nearest.found.flatten(0, 1), (batch, count))


def blocks_of(points: int, room_for_each: int, device: torch.device) -> Iterator[slice]:
    """Slices of points, so that a block fits into the cache of a CPU, and keeps a GPU busy."""
    if torch.compiler.is_compiling():
        return iter([slice(0, points)])
    step = max(1, (2**20 if device.type == "cpu" else 2**26) // max(1, room_for_each))
    return (slice(start, min(points, start + step)) for start in range(0, points, step))
