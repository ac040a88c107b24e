"""From pairs of clouds and their matches to what the solver minimises."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from p2plane.geometry.normals import plane_covariances
from p2plane.solve.inputs import Pairs
from p2plane.solve.problem import Problem, fixed_metric, plane_to_plane_metric, symmetric_metric
from p2plane.solve.robust import RobustKernel

DISTANCES = ("point", "plane", "symmetric", "plane-to-plane")
_TURNING = {"symmetric": symmetric_metric, "plane-to-plane": plane_to_plane_metric}


class Matches(NamedTuple):
    """The pairs of a round; row i belongs to source point i."""

    partners: np.ndarray  # (N,) int64 rows of the target
    kept: np.ndarray  # (N,) bool, whether the pair counts


@dataclass(frozen=True)
class Distance:
    """One of `DISTANCES`, and a kernel."""

    name: str
    kernel: RobustKernel | None = None

    @property
    def needs_normals(self) -> tuple[bool, bool]:
        """Whether it looks at the normals of the source and of the target."""
        return self.name in _TURNING, self.name != "point"

    @property
    def has_planes(self) -> bool:
        """Whether it is a height over a plane."""
        return self.name in ("plane", "symmetric")

    def planes(
        self, R: np.ndarray, source: np.ndarray | None, target: np.ndarray | None, partners: np.ndarray
    ) -> np.ndarray:
        """(3, N) unit normals of those planes, from the normals (3, N) and (3, M) of the clouds."""
        assert target is not None
        theirs = target.take(partners, axis=1)
        if self.name == "plane":
            return theirs
        assert source is not None
        metric = symmetric_metric(torch.from_numpy(R)[None], _batch(source), _batch(theirs))
        return metric[0].numpy().T

    def weighted(self, normals: np.ndarray, moved: np.ndarray, points: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """(3, N) normals times the roots of what their pairs count, of moved source points and their partners."""
        if self.kernel is None:
            return normals if kept.all() else normals * kept
        squares = torch.from_numpy(np.square(np.einsum("an,an->n", normals, moved - points)))[None]
        weights = self.kernel.weight(squares, torch.from_numpy(kept)[None])[0].numpy()
        return normals * np.sqrt(kept * weights)


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
        tensors = [plane_covariances(normals) for normals in tensors]
    metric = _TURNING.get(distance.name, fixed_metric)
    return Problem(pairs, metric, tuple(tensors), distance.kernel, turns=distance.name in _TURNING)


def of_partners(values: Tensor, partners: Tensor) -> Tensor:
    """(N, ...) what belongs to the partners; zeros where the target is empty."""
    return values[partners] if len(values) else values.new_zeros(len(partners), *values.shape[1:])


def batched(problems: list[Problem], batch_shape: torch.Size) -> Problem:
    """One problem of many, padded with absent pairs to the longest."""
    first = problems[0]
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


def _batch(channels: np.ndarray) -> Tensor:
    return torch.from_numpy(channels).mT[None]
