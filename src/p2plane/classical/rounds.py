"""The rounds of ICP on one pair of clouds: find partners, take the pose that fits them best, look again.

Inside, both clouds are moved to their own centres, channel first, float64 and in NumPy, see `pairing`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from p2plane.classical.forms import in_units, moments_of
from p2plane.classical.pairing import Pairing, Target, along_a_grid, lengths
from p2plane.classical.problems import Distance, Matches, Sight, problem_of
from p2plane.classical.scales import Surface
from p2plane.classical.steps import descend
from p2plane.solve.implicit import Settings, chart_for
from p2plane.solve.newton import newton
from p2plane.solve.quadratic import Frame, summarize

FEWEST_PAIRS = 3  # fewer determine no motion
LONGEST_CYCLE = 8  # rounds, after which a cloud that goes in circles is noticed
PART, ENOUGH = 8, 1000  # the first rounds look at every eighth point, if those are as many
ROUGHLY = 1e-3  # radians and units of the radius, under which a round of these few is their last


@dataclass(frozen=True)
class Rules:
    """Who may be partners, what their distance is, and when to stop."""

    distance: Distance
    max_distance: float
    trim: float | None  # the share of the pairs that is kept
    max_normal_angle: float | None
    max_iterations: int
    tolerance: float  # a round that moves the cloud by less, in radians and units of its radius, is the last
    rmse_tolerance: float | None  # so is one that changes share and root mean square distance of the pairs by less
    settings: Settings


class Outcome(NamedTuple):
    """Where the rounds ended."""

    T: np.ndarray  # (3, 4) in the caller's coordinates
    matches: Matches  # of the last round
    converged: bool
    iterations: int


def register(source: Surface, target: Surface, T: np.ndarray, rules: Rules) -> Outcome:
    """The pose (3, 4) that ICP reaches from T."""
    if len(source.points) == 0 or len(target.points) == 0:
        nobody = np.zeros(len(source.points), dtype=np.int64)
        return Outcome(T, Matches(nobody, nobody.astype(bool)), False, 0)
    clouds = _Clouds.of(source, target)
    T_local, iterations = clouds.to_local(T), 0
    if len(source.points) >= PART * ENOUGH and rules.max_iterations > 1:
        few = _Rounds(clouds.part(), rules).run(T_local, max(ROUGHLY, rules.tolerance), rules.max_iterations - 1)
        if few.found:
            T_local, iterations = few.T, few.iterations
    end = _Rounds(clouds, rules).run(T_local, rules.tolerance, rules.max_iterations - iterations)
    matches = clouds.in_order(end.matches)
    return Outcome(clouds.to_caller(end.T), matches, end.converged, iterations + end.iterations)


class _Clouds(NamedTuple):
    """What the rounds look at: both clouds, moved to their own centres."""

    source_center: np.ndarray  # (3, 1)
    target_center: np.ndarray  # (3, 1)
    source: np.ndarray  # (3, N)
    source_normals: np.ndarray | None  # (3, N)
    target: Target
    target_normals: np.ndarray | None  # (3, M)
    order: np.ndarray  # (N,) rows of the surface

    @staticmethod
    def of(source: Surface, target: Surface) -> _Clouds:
        points, others = _channels(source.points), _channels(target.points)
        centers = points.mean(1, keepdims=True), others.mean(1, keepdims=True)
        points -= centers[0]
        others -= centers[1]
        order = along_a_grid(points) if points.shape[1] > ENOUGH else np.arange(points.shape[1])
        normals = None if source.normals is None else _channels(source.normals)[:, order]
        other_normals = None if target.normals is None else _channels(target.normals)
        return _Clouds(*centers, points.take(order, axis=1), normals, Target(others), other_normals, order)

    def to_local(self, T: np.ndarray) -> np.ndarray:
        """(3, 4) pose between these clouds, of a pose between the caller's."""
        return np.hstack([T[:, :3], T[:, 3:] - self.target_center + T[:, :3] @ self.source_center])

    def to_caller(self, T: np.ndarray) -> np.ndarray:
        """(3, 4) pose between the caller's clouds, of a pose between these."""
        return np.hstack([T[:, :3], T[:, 3:] + self.target_center - T[:, :3] @ self.source_center])

    def part(self) -> _Clouds:
        """Every eighth source point by its distance from the centre, which no motion and no order changes."""
        few = np.sort(np.argsort(lengths(self.source))[::PART])
        normals = None if self.source_normals is None else self.source_normals[:, few]
        return self._replace(source=self.source[:, few], source_normals=normals, order=self.order[few])

    def in_order(self, matches: Matches) -> Matches:
        """Matches in the order of the surface's points."""
        partners, kept = np.empty_like(matches.partners), np.empty_like(matches.kept)
        partners[self.order], kept[self.order] = matches
        return Matches(partners, kept)


class _End(NamedTuple):
    T: np.ndarray  # (3, 4)
    matches: Matches
    found: bool  # whether there was something to go by
    converged: bool
    iterations: int


class _Rounds:
    """The rounds on two clouds."""

    def __init__(self, clouds: _Clouds, rules: Rules) -> None:
        self.clouds, self.rules = clouds, rules
        self.radius = math.sqrt(float(np.square(clouds.source).sum()) / clouds.source.shape[1]) or 1.0
        self.units = np.array([1, 1, 1, 1 / self.radius])  # of the columns of a pose
        self.moments = moments_of(clouds.source)
        self.pairing = Pairing(clouds.target, rules.max_distance)
        self.settled: np.ndarray | None = None  # (N,) bool, the points that keep the partner they have
        self.kept_by_settled = Matches(self.pairing.partners, self.pairing.partners)

    def run(self, T: np.ndarray, tolerance: float, max_iterations: int) -> _End:
        """Rounds from a pose (3, 4) until one moves the cloud by no more than the tolerance, or the pairs stand."""
        poses, before, quality = [T], None, (math.inf, math.inf)
        while True:
            matches, moved = self.match(T)
            last_quality, quality = quality, self.quality(matches)
            T_next = self.step(T, moved, matches)
            if T_next is None:
                return _End(T, matches, False, False, len(poses))
            motions = self.motions(poses[-LONGEST_CYCLE:], T_next)
            converged = bool(motions[-1] <= tolerance) or self.stands(last_quality, quality)
            if before is not None and motions[:-1].min(initial=math.inf) <= tolerance:
                self.settle(before, matches)
            T, before = T_next, matches
            poses.append(T)
            if converged or len(poses) > max_iterations:
                return _End(T, matches, True, converged, len(poses) - 1)

    def match(self, T: np.ndarray) -> tuple[Matches, np.ndarray]:
        """The pairs at a pose (3, 4), and the moved source (3, N)."""
        rules, pairing, clouds = self.rules, self.pairing, self.clouds
        moved = T[:, :3] @ clouds.source + T[:, 3:]
        pairing.follow(moved)
        kept = pairing.distances <= rules.max_distance
        if rules.max_normal_angle is not None:
            assert clouds.source_normals is not None
            assert clouds.target_normals is not None
            turned, theirs = T[:, :3] @ clouds.source_normals, clouds.target_normals[:, pairing.partners]
            kept &= np.abs((turned * theirs).sum(0)) >= math.cos(rules.max_normal_angle)
        if rules.trim is not None:
            kept = _nearest(pairing.distances, kept, rules.trim)
        if self.settled is None:
            return Matches(pairing.partners, kept), moved
        held = self.kept_by_settled
        partners = np.where(self.settled, held.partners, pairing.partners)
        return Matches(partners, np.where(self.settled, held.kept, kept)), moved

    def settle(self, before: Matches, now: Matches) -> None:
        """Let those who change their partners back and forth keep the ones they have: the rounds would never end."""
        changed = (before.partners != now.partners) | (before.kept != now.kept)
        self.settled = changed if self.settled is None else self.settled | changed
        self.kept_by_settled = now

    def step(self, T: np.ndarray, moved: np.ndarray, matches: Matches) -> np.ndarray | None:
        """The pose that fits the pairs best, near T; None where they are too few or determine nothing."""
        if np.count_nonzero(matches.kept) < FEWEST_PAIRS:
            return None
        plainly = self.plain_step(T, moved, matches)
        return self.careful_step(T, matches) if plainly is None else plainly

    def plain_step(self, T: np.ndarray, moved: np.ndarray, matches: Matches) -> np.ndarray | None:
        """By Gauss-Newton steps; None where they do not do, or a direction is held or open."""
        clouds, settings, (partners, kept) = self.clouds, self.rules.settings, matches
        if len(settings.free) < 6:
            return None
        points = self.pairing.points if self.settled is None else clouds.target.points[:, partners]
        normals = None if clouds.target_normals is None else clouds.target_normals.take(partners, axis=1)
        sight = Sight(self.moments, moved, points, kept, clouds.source_normals, normals)
        form = in_units(self.rules.distance.form(sight, T), self.radius)
        T_next = descend(form, T * self.units, settings.limits.undetermined_below)
        return None if T_next is None else T_next / self.units

    @torch.no_grad()
    def careful_step(self, T: np.ndarray, matches: Matches) -> np.ndarray | None:
        """By Newton's method, in the directions that are free and that the pairs determine; None without any."""
        clouds, settings = self.clouds, self.rules.settings
        if not settings.free:
            return T
        source, target = _rows(clouds.source), _rows(clouds.target.points)
        ours, theirs = (
            None if each is None else _rows(each) for each in (clouds.source_normals, clouds.target_normals)
        )
        T_here = torch.from_numpy(T)[None]
        problem = problem_of(source, target, ours, theirs, matches, self.rules.distance)
        quadratic = summarize(problem.linearized(T_here))
        frame = quadratic.frame
        source_center, target_center = map(torch.from_numpy, clouds[:2])
        callers = Frame(frame.source_center + source_center, frame.target_center + target_center, frame.scale)
        end = newton(quadratic, frame.to_local(T_here), chart_for(settings, callers), settings.limits, careful=True)
        nothing_determined = torch.linalg.eigvalsh(end.gauss_newton).max() < settings.limits.undetermined_below
        return None if nothing_determined else frame.to_caller(end.T)[0].numpy()

    def motions(self, poses: list[np.ndarray], T: np.ndarray) -> np.ndarray:
        """(K,) how far poses are from T, in radians and units of the radius."""
        squares = np.square(np.array(poses) - T)
        turns = squares[:, :, :3].sum((1, 2)) / 2  # (2 sin(angle / 2))^2
        return np.sqrt(np.maximum(turns, squares[:, :, 3].sum(1) / self.radius**2))

    def quality(self, matches: Matches) -> tuple[float, float]:
        """Share and root mean square distance of the pairs, where somebody asks."""
        if self.rules.rmse_tolerance is None:
            return math.inf, math.inf
        distances = self.pairing.distances[matches.kept]
        return len(distances) / len(matches.kept), math.sqrt(float(distances @ distances) / max(1, len(distances)))

    def stands(self, before: tuple[float, float], now: tuple[float, float]) -> bool:
        """Whether share and distance have stopped changing."""
        limit = self.rules.rmse_tolerance
        return limit is not None and all(abs(a - b) < limit for a, b in zip(before, now, strict=True))


def _nearest(distances: np.ndarray, kept: np.ndarray, share: float) -> np.ndarray:
    """(N,) the nearest of the pairs that are kept, so many of them."""
    count = math.ceil(share * np.count_nonzero(kept) - 1e-9)
    if count == 0:
        return kept
    limit = np.partition(distances[kept], count - 1)[count - 1]
    return kept & (distances <= limit)


def _channels(rows: Tensor) -> np.ndarray:
    """(3, N) float64 from (N, 3), a copy."""
    return rows.numpy(force=True).T.astype(np.float64, order="C")


def _rows(channels: np.ndarray) -> Tensor:
    """(N, 3) from (3, N)."""
    return torch.from_numpy(channels).mT
