"""From pairs of clouds and their matches to what the solver minimises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from p2plane.classical.forms import form_of_metrics, form_of_planes, mean_directions, precisions_of_planes
from p2plane.geometry.normals import plane_covariances
from p2plane.solve.inputs import Pairs
from p2plane.solve.problem import Problem, fixed_metric, plane_to_plane_metric, symmetric_metric
from p2plane.solve.robust import RobustKernel

DISTANCES = ("point", "plane", "symmetric", "plane-to-plane")
EPSILON = 1e-3  # variance along a normal, of one across it
_TURNING = {"symmetric": symmetric_metric, "plane-to-plane": plane_to_plane_metric}


class Matches(NamedTuple):
    """The pairs of a round; row i belongs to source point i."""

    partners: np.ndarray  # (N,) int64 rows of the target
    kept: np.ndarray  # (N,) bool, whether the pair counts


class Sight(NamedTuple):
    """What a round sees of its pairs, channel first and in float64."""

    moments: np.ndarray  # (10, N) of the source
    moved: np.ndarray  # (3, N) the source where it is now
    points: np.ndarray  # (3, N) its partners
    kept: np.ndarray  # (N,) bool
    source_normals: np.ndarray | None  # (3, N)
    normals: np.ndarray | None  # (3, N) of the partners


@dataclass(frozen=True)
class Distance:
    """One of `DISTANCES`, and a kernel."""

    name: str
    kernel: RobustKernel | None = None

    @property
    def needs_normals(self) -> tuple[bool, bool]:
        """Whether it looks at the normals of the source and of the target."""
        return self.name in _TURNING, self.name != "point"

    def form(self, sight: Sight, T: np.ndarray) -> np.ndarray:
        """(13, 13) the summary of the pairs with metric and weights as they are at a pose (3, 4)."""
        turned = None if sight.source_normals is None else T[:, :3] @ sight.source_normals
        if self.name in ("plane", "symmetric"):
            assert sight.normals is not None
            normals = sight.normals if self.name == "plane" else mean_directions(_there(turned), sight.normals)
            weights = self._weights(sight, lambda apart: np.square(np.einsum("an,an->n", normals, apart)))
            return form_of_planes(
                sight.moments, sight.points, normals if weights is None else normals * np.sqrt(weights)
            )
        if self.name == "point":
            metric = np.broadcast_to(np.eye(3)[:, :, None], (3, 3, sight.points.shape[1]))
        else:
            metric = precisions_of_planes(_there(turned), _there(sight.normals), EPSILON)
        weights = self._weights(sight, lambda apart: np.einsum("an,abn,bn->n", apart, metric, apart))
        return form_of_metrics(sight.moments, sight.points, metric if weights is None else metric * weights)

    def _weights(self, sight: Sight, squares: Callable[[np.ndarray], np.ndarray]) -> np.ndarray | None:
        """(N,) what pairs count whose squared distances follow from how far they are apart (3, N); None for one."""
        if self.kernel is None:
            return None if sight.kept.all() else sight.kept
        squared = torch.from_numpy(squares(sight.moved - sight.points))[None]
        return sight.kept * self.kernel.weight(squared, torch.from_numpy(sight.kept)[None])[0].numpy()


def problem_of(
    source: Tensor,
    target: Tensor,
    source_normals: Tensor | None,
    target_normals: Tensor | None,
    matches: Matches,
    distance: Distance,
) -> Problem:
    """What a round minimises, for one pair of clouds (N, 3) and (M, 3), as a batch of one.

    Gradient: the clouds and their normals.
    """
    partners = torch.from_numpy(matches.partners).to(source.device)
    mask = None if matches.kept.all() else torch.from_numpy(matches.kept)[None].to(source.device)
    pairs = Pairs(source[None], of_partners(target, partners)[None], None, None, mask, torch.Size([1]))
    tensors = []
    if distance.needs_normals[0]:
        assert source_normals is not None
        tensors.append(source_normals[None])
    if distance.needs_normals[1]:
        assert target_normals is not None
        tensors.append(of_partners(target_normals, partners)[None])
    if distance.name == "plane-to-plane":
        tensors = [plane_covariances(normals, EPSILON) for normals in tensors]
    metric = _TURNING.get(distance.name, fixed_metric)
    return Problem(pairs, metric, tuple(tensors), distance.kernel, turns=distance.name in _TURNING)


def of_partners(values: Tensor, partners: Tensor) -> Tensor:
    """(N, ...) what belongs to the partners; zeros where the target is empty."""
    return values[partners] if len(values) else values.new_zeros(len(partners), *values.shape[1:])


def batched(problems: list[Problem], batch_shape: torch.Size) -> Problem:
    """One problem of many, padded with absent pairs to the longest."""
    first = problems[0]
    if len(problems) == 1:
        return replace(first, pairs=replace(first.pairs, batch_shape=batch_shape))
    length = max(problem.pairs.source.shape[1] for problem in problems)

    def together(tensors: list[Tensor]) -> Tensor:
        return torch.cat([pad(each, (0, 0) * (each.ndim - 2) + (0, length - each.shape[1])) for each in tensors])

    everything = all(problem.pairs.mask is None and problem.pairs.source.shape[1] == length for problem in problems)
    pairs = replace(
        first.pairs,
        source=together([problem.pairs.source for problem in problems]),
        target=together([problem.pairs.target for problem in problems]),
        mask=None if everything else together([_mask(problem.pairs) for problem in problems]),
        batch_shape=batch_shape,
    )
    tensors = (together(list(each)) for each in zip(*(problem.tensors for problem in problems), strict=True))
    return replace(first, pairs=pairs, tensors=tuple(tensors))


def _mask(pairs: Pairs) -> Tensor:
    everywhere = torch.ones(pairs.source.shape[:2], dtype=torch.bool, device=pairs.source.device)
    return everywhere if pairs.mask is None else pairs.mask


def _there(normals: np.ndarray | None) -> np.ndarray:
    assert normals is not None
    return normals
