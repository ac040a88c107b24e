"""What is minimised: pairs, a distance between the two points of a pair, and perhaps a robust kernel.

A distance is a choice of W_i. It is fixed (the identity, ``n n^T``, a given matrix) or a function of the rotation
(symmetric point-to-plane, plane-to-plane).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from p2plane.solve.inputs import Pairs
from p2plane.solve.robust import RobustKernel

Metric = Callable[..., Tensor | None]  # (R (B, 3, 3), *per-point tensors) -> W_i, as in `Pairs`


@dataclass(frozen=True)
class Problem:
    """Pairs (their own metric unused), the metric as a function of the rotation, its tensors, and a kernel."""

    pairs: Pairs
    metric: Metric
    tensors: tuple[Tensor, ...]  # (B, N, 3) or (B, N, 3, 3) what the metric is made of
    kernel: RobustKernel | None = None
    turns: bool = False  # whether the metric changes with the rotation

    @property
    def rough(self) -> Tensor | None:
        """A fixed metric that serves for a first guess: the last tensor if it holds normals, else the identity."""
        if not self.tensors or (self.turns and self.tensors[-1].ndim == 4):
            return None
        return self.tensors[-1]

    def distances(self, T: Tensor) -> Tensor:
        """(B, N) distances at (B, 3, 4) poses: signed for planes, Mahalanobis for matrices; zero where absent."""
        problem = self.without_absent()
        residuals, metric = problem._residuals(T), problem.metric(T[:, :, :3], *problem.tensors)
        if metric is not None and metric.ndim == 3:
            distances = (residuals * metric).sum(-1)
        else:
            squared = squared_lengths(residuals, metric)
            positive = squared > 0  # the root has no slope at zero
            distances = torch.where(positive, torch.where(positive, squared, 1.0).sqrt(), 0.0)
        return distances if self.pairs.mask is None else distances.masked_fill(~self.pairs.mask, 0.0)

    def energy(self, T: Tensor, R_of_metric: Tensor | None = None) -> Tensor:
        """(B,) energies at (B, 3, 4) poses, the metric taken at their rotations or at others."""
        problem = self.without_absent()
        R = T[:, :, :3] if R_of_metric is None else R_of_metric
        squared = squared_lengths(problem._residuals(T), problem.metric(R, *problem.tensors))
        weights = problem.weights()
        return (weights * (squared if self.kernel is None else self.kernel.cost(squared, weights > 0))).sum(-1)

    def linearized(self, T: Tensor, width: Tensor | None = None) -> Pairs:
        """The pairs with the metric and the weights that they have at (B, 3, 4) poses: a fixed quadratic distance.

        The kernel is at least as wide as `width` (B, 1).
        """
        if self.kernel is None:
            return replace(self.pairs, metric=self.metric(T[:, :, :3], *self.tensors))
        problem = self.without_absent()
        metric, weights = problem.metric(T[:, :, :3], *problem.tensors), problem.weights()
        squared = squared_lengths(problem._residuals(T), metric)
        return replace(problem.pairs, metric=metric, weights=weights * self.kernel.weight(squared, weights > 0, width))

    def without_absent(self) -> Problem:
        """The same problem with absent points at the origin, their normals along z, their matrices the identity.

        What stood there may be NaN, and must reach no derivative.
        """
        pairs = self.pairs
        if pairs.mask is None:
            return self
        absent = ~pairs.mask[..., None]
        source, target = pairs.source.masked_fill(absent, 0.0), pairs.target.masked_fill(absent, 0.0)
        weights = None if pairs.weights is None else pairs.weights.masked_fill(absent[..., 0], 0.0)
        identity = torch.eye(3, dtype=torch.float64, device=source.device)
        tensors = tuple(
            torch.where(absent[..., None], identity.to(tensor.dtype), tensor)
            if tensor.ndim == 4
            else torch.where(absent, identity[2].to(tensor.dtype), tensor)
            for tensor in self.tensors
        )
        return replace(self, pairs=replace(pairs, source=source, target=target, weights=weights), tensors=tensors)

    def weights(self) -> Tensor:
        """(B, N) float64 weights, zero where absent."""
        pairs = self.pairs
        weights = torch.ones_like(pairs.source[..., 0]) if pairs.weights is None else pairs.weights
        return weights.double() if pairs.mask is None else weights.double().masked_fill(~pairs.mask, 0.0)

    def _residuals(self, T: Tensor) -> Tensor:
        return self.pairs.source.double() @ T[:, :, :3].mT + T[:, None, :, 3] - self.pairs.target.double()


def squared_lengths(vectors: Tensor, metric: Tensor | None) -> Tensor:
    """(B, N) ``v^T W v`` of (B, N, 3) vectors."""
    if metric is None:
        return vectors.square().sum(-1)
    if metric.ndim == 3:
        return (vectors * metric).sum(-1).square()
    return (vectors * (metric.double() @ vectors[..., None]).squeeze(-1)).sum(-1)


def fixed_metric(R: Tensor, metric: Tensor | None = None) -> Tensor | None:
    """The same W_i at every rotation."""
    return metric


def symmetric_metric(R: Tensor, source_normals: Tensor, target_normals: Tensor) -> Tensor:
    """(B, N, 3) the mean direction of ``R m_i`` and ``s_i n_i``, s_i the sign that makes the two agree.

    Of unit length: with the sum itself, as it is often written, turning the normals apart would lower the energy.
    """
    turned = source_normals.double() @ R.mT
    target_normals = target_normals.double()
    agree = (turned * target_normals).sum(-1, keepdim=True) >= 0
    return normalize(turned + torch.where(agree, target_normals, -target_normals), dim=-1)


def plane_to_plane_metric(R: Tensor, source_covariances: Tensor, target_covariances: Tensor) -> Tensor:
    """(B, N, 3, 3) ``(C_y + R C_x R^T)^-1``."""
    turned = R[:, None] @ source_covariances.double() @ R[:, None].mT
    return torch.linalg.inv_ex(target_covariances.double() + turned).inverse
