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

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from p2plane.networks.batch_norm import (
    Layer,
    Moments,
    Statistics,
    normalized_map,
    running_statistics,
    scale_and_shift,
    statistics_of_map,
)
from p2plane.networks.edge_layers import EdgeLayers
from p2plane.networks.graph import Graph, neighbor_graph
from p2plane.networks.pair_layers import NeighborMax, pair_moments


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
        graph = neighbor_graph(points, self.neighbors, mask)
        pooled, statistics = self._pooled(features.flatten(0, 1), graph, mask)
        last, of_last = normalized_map(pooled, *self._layer(self.depth), mask)
        return self._activated(last).unflatten(0, points.shape[:2]), [*statistics, *of_last]

    def remember(self, statistics: Sequence[Statistics]) -> None:
        """Move the running statistics towards those of a batch."""
        for i, (mean, variance) in enumerate(statistics):
            norm = self._layer(i)[1]
            running = running_statistics(norm)
            running.mean.lerp_(mean.to(running.mean), norm.momentum or 0.0)
            running.variance.lerp_(variance.to(running.variance), norm.momentum or 0.0)
            assert norm.num_batches_tracked is not None
            norm.num_batches_tracked.add_(1)

    def _pooled(self, features: Tensor, graph: Graph, mask: Tensor | None) -> tuple[Tensor, list[Statistics]]:
        """(P, sum of widths) maxima of all layers on edges, from features (P, D) of points."""
        raise NotImplementedError

    def _layer(self, i: int) -> tuple[Tensor, nn.BatchNorm1d]:
        return getattr(self, f"conv{i + 1}").weight, getattr(self, f"bn{i + 1}")

    def _activated(self, values: Tensor) -> Tensor:
        return F.relu_(values) if self.slope == 0 else F.leaky_relu_(values, self.slope)


class StaticDGCNN(DGCNN):
    """DGCNN as in DCP: one graph, and each layer goes on with the edges of the one before."""

    def _pooled(self, features: Tensor, graph: Graph, mask: Tensor | None) -> tuple[Tensor, list[Statistics]]:
        layers = [self._layer(i) for i in range(self.depth)]
        running = None if self.training else [running_statistics(norm) for _, norm in layers]
        parameters = [tensor for weight, norm in layers for tensor in (weight, norm.weight, norm.bias)]
        pooled, *flat = EdgeLayers.apply(features, graph, running, layers[0][1].eps, *parameters)
        return pooled, [Statistics(*pair) for pair in zip(flat[::2], flat[1::2], strict=True)]


class DynamicDGCNN(DGCNN):
    """DGCNN as in PRNet: each layer takes the maxima of the one before, and the graph of their neighbours."""

    pairs_everywhere = True

    def _pooled(self, features: Tensor, graph: Graph, mask: Tensor | None) -> tuple[Tensor, list[Statistics]]:
        outputs: list[Tensor] = []
        statistics = []
        for i in range(self.depth):
            if i > 0:
                graph = neighbor_graph(features.view(*graph.shape, -1), self.neighbors, mask)
            weight, norm = self._layer(i)
            seen: Statistics | Moments = running_statistics(norm)
            if self.training:
                seen = pair_moments(features, graph)
                statistics.append(statistics_of_map(weight.detach(), seen, unbiased=True))
            scale, shift = scale_and_shift(Layer(weight, norm.weight, norm.bias), seen, norm.eps)
            of_neighbor, of_point = (scale[:, None] * weight).chunk(2, dim=1)
            strongest: Tensor = NeighborMax.apply(F.linear(features, of_neighbor), graph.rows)
            features = self._activated(F.linear(features, of_point, shift).add_(strongest))
            outputs.append(features)
        return torch.cat(outputs, dim=-1), [Statistics(*(each.detach() for each in pair)) for pair in statistics]
