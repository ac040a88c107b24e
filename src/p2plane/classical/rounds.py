"""The rounds of ICP on one pair of clouds: find partners, take the pose that fits them best, look again."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from p2plane.classical.pairing import Pairing
from p2plane.classical.scales import Surface
from p2plane.geometry.normals import plane_covariances
from p2plane.solve.implicit import Settings, chart_for
from p2plane.solve.inputs import Pairs
from p2plane.solve.minimize import newton
from p2plane.solve.problem import Problem, fixed_metric, plane_to_plane_metric, symmetric_metric
from p2plane.solve.quadratic import Frame, summarize
from p2plane.solve.robust import RobustKernel, Trimmed

DISTANCES = ("point", "plane", "symmetric", "plane-to-plane")
FEWEST_PAIRS = 3  # fewer determine no motion


@dataclass(frozen=True)
class Rules:
    """Who may be partners, what their distance is, and when to stop."""

    distance: str
    kernel: RobustKernel | None
    max_distance: float
    trim: float | None  # the share of the pairs that is kept
    max_normal_angle: float | None
    max_iterations: int
    tolerance: float  # a round that moves the cloud by less, in radians and units of its radius, is the last
    settings: Settings


@dataclass(frozen=True)
class Matches:
    """The pairs of a round; row i belongs to source point i."""

    partners: Tensor  # (N,) int64 rows of the target
    kept: Tensor  # (N,) bool, whether the pair counts


@dataclass(frozen=True)
class Outcome:
    """Where the rounds ended."""

    T: Tensor  # (1, 3, 4) float64, in the caller's coordinates
    matches: Matches  # of the last round
    converged: bool
    iterations: int


def register(source: Surface, target: Surface, T: Tensor, rules: Rules) -> Outcome:
    """The pose (1, 3, 4) that ICP reaches from T."""
    if len(source.points) == 0 or len(target.points) == 0:
        none = torch.zeros(len(source.points), dtype=torch.int64, device=T.device)
        return Outcome(T, Matches(none, none.bool()), False, 0)
    origin = Frame(_center(source.points), _center(target.points), T.new_ones(1, 1, 1))
    rounds = _Rounds(source, target, origin, rules)
    T, converged, matches = origin.to_local(T), False, None
    for iteration in range(rules.max_iterations):  # noqa: B007
        matches = rounds.matches(T)
        T_next, found = rounds.step(T, matches)
        converged = found and rounds.motion(T, T_next) <= rules.tolerance
        T = T_next
        if converged or not found:
            break
    assert matches is not None
    return Outcome(origin.to_caller(T), matches, converged, iteration + 1)


class _Rounds:
    """Two clouds in float64, moved to their own centres, and their pairs."""

    def __init__(self, source: Surface, target: Surface, origin: Frame, rules: Rules) -> None:
        self.rules, self.origin = rules, origin
        self.source = source.points.detach().double() - origin.source_center.mT[0]  # (N, 3)
        self.target = target.points.detach().double() - origin.target_center.mT[0]  # (M, 3)
        self.radius = float(self.source.square().sum(-1).mean().sqrt()) or 1.0
        self.normals = [None if side.normals is None else side.normals.detach().double() for side in (source, target)]
        self.pairing = Pairing(self.target, rules.max_distance)
        self.tensors = distance_tensors(rules.distance, *self.normals)

    def matches(self, T: Tensor) -> Matches:
        """The pairs at a pose."""
        rules = self.rules
        partners, distances = self.pairing.at(torch.addmm(T[0, :, 3], self.source, T[0, :, :3].mT))
        kept = distances <= rules.max_distance
        if rules.max_normal_angle is not None:
            ours, theirs = self.normals
            assert ours is not None
            assert theirs is not None
            cosines = ((ours @ T[0, :, :3].mT) * theirs[partners]).sum(-1).abs()
            kept = kept & (cosines >= math.cos(rules.max_normal_angle))
        if rules.trim is not None:
            nearest = Trimmed(rules.trim).weight(distances.square()[None], kept[None])[0]
            kept = kept & (nearest > 0)
        return Matches(partners, kept)

    def step(self, T: Tensor, matches: Matches) -> tuple[Tensor, bool]:
        """The pose near T that fits the pairs best, and whether it is a minimum."""
        if int(matches.kept.sum()) < FEWEST_PAIRS:
            return T, False
        problem = problem_of(self.source, self.target, self.tensors, matches, self.rules)
        quadratic = summarize(problem.linearized(T))
        frame = quadratic.frame
        to_origin = frame._replace(
            source_center=frame.source_center + self.origin.source_center,
            target_center=frame.target_center + self.origin.target_center,
        )
        settings = self.rules.settings
        end = newton(quadratic, frame.to_local(T), chart_for(settings, to_origin), settings.limits, careful=True)
        return frame.to_caller(end.T), bool(end.converged)

    def motion(self, T: Tensor, T_next: Tensor) -> float:
        """How far two poses are apart, in radians and units of the radius."""
        turn = (T_next[:, :, :3] - T[:, :, :3]).norm() / math.sqrt(2)  # 2 sin(angle / 2)
        shift = (T_next[:, :, 3] - T[:, :, 3]).norm() / self.radius
        return float(torch.maximum(turn, shift))


def distance_tensors(distance: str, source: Tensor | None, target: Tensor | None) -> tuple[Tensor | None, ...]:
    """What the metric is made of, for source and target: normals or covariances, from the normals (N, 3), (M, 3)."""
    if distance == "point":
        return None, None
    if distance == "plane":
        return None, target
    assert source is not None
    assert target is not None
    if distance == "symmetric":
        return source, target
    return plane_covariances(source), plane_covariances(target)


def problem_of(
    source: Tensor, target: Tensor, tensors: tuple[Tensor | None, ...], matches: Matches, rules: Rules
) -> Problem:
    """What a round minimises, for one pair of clouds (N, 3) and (M, 3)."""
    metrics = {"symmetric": symmetric_metric, "plane-to-plane": plane_to_plane_metric}
    rows = [each[None] for each in (tensors[0],) if each is not None]
    rows += [each[matches.partners][None] for each in (tensors[1],) if each is not None]
    mask = None if bool(matches.kept.all()) else matches.kept[None]
    pairs = Pairs(source[None], target[matches.partners][None], None, None, mask, torch.Size([1]))
    metric = metrics.get(rules.distance, fixed_metric)
    return Problem(pairs, metric, tuple(rows), rules.kernel, turns=rules.distance in metrics)


def batched(problems: list[Problem], batch_shape: torch.Size) -> Problem:
    """One problem of many, padded with absent pairs to the longest."""
    length = max(problem.pairs.source.shape[1] for problem in problems)
    first = problems[0]

    def stacked(tensors: list[Tensor]) -> Tensor:
        return torch.cat(
            [
                torch.cat([each, each.new_zeros(1, length - each.shape[1], *each.shape[2:])], dim=1)
                if each.shape[1] < length
                else each
                for each in tensors
            ]
        )

    masks = [_mask_of(problem) for problem in problems]
    whole = all(problem.pairs.mask is None and problem.pairs.source.shape[1] == length for problem in problems)
    pairs = replace(
        first.pairs,
        source=stacked([problem.pairs.source for problem in problems]),
        target=stacked([problem.pairs.target for problem in problems]),
        mask=None if whole else stacked(masks),
        batch_shape=batch_shape,
    )
    tensors = [stacked(list(each)) for each in zip(*(problem.tensors for problem in problems), strict=True)]
    return replace(first, pairs=pairs, tensors=tuple(tensors))


def _mask_of(problem: Problem) -> Tensor:
    mask = problem.pairs.mask
    return (
        torch.ones(problem.pairs.source.shape[:2], dtype=torch.bool, device=problem.pairs.source.device)
        if mask is None
        else mask
    )


def _center(points: Tensor) -> Tensor:
    """(1, 3, 1) the mean in float64."""
    return points.detach().double().mean(0)[None, :, None]
