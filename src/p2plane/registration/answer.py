"""The candidates for a pose, weighed; and the best of them, refined and checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Tensor

from p2plane.classical.sweep import SweepSettings, is_close
from p2plane.data.cloud import Cloud
from p2plane.registration.check import Fit, Overlap
from p2plane.registration.confidence import Evidence, in_tolerances, probability, reservations
from p2plane.registration.knowledge import Knowledge, about_origin
from p2plane.registration.refine import Settled, refine, settle
from p2plane.registration.result import Candidate, Registration, Spread
from p2plane.registration.scan import Scan, thin_to
from p2plane.registration.spread import CUTS, NOISY, WIDE, mean_pose, settled_halves, spread_about
from p2plane.registration.words import canonical, in_words

ROUGH_POINTS, CHECK_POINTS = 3_000, 20_000  # where candidates are weighed, and where the answer is checked
ROUGH_REACHES = (4.0, 2.5)  # in units of the spacing of the rough clouds
FINE_REACH = 4.0  # in units of the spacing of the clouds that are checked


class Search:
    """Two scans, what is known, and the candidates so far; all poses are between the centred scans."""

    def __init__(self, source: Scan, target: Scan, knowledge: Knowledge) -> None:
        self.source, self.target, self.knowledge = source, target, knowledge
        self.rough, self.fine = (
            Overlap(thin_to(source.cloud, count), thin_to(target.cloud, count))
            for count in (ROUGH_POINTS, CHECK_POINTS)
        )
        self.candidates: list[Candidate] = []

    def weigh(self, origin: str, proposals: Tensor) -> None:
        """Refine proposals (P, 4, 4) on the rough clouds, and take those that are new among the candidates.

        Where coordinates are so large that a network overflows, what it says is not finite, and is passed over.
        """
        rough = self.rough
        reaches = [reach * rough.spacing for reach in ROUGH_REACHES]
        for T in proposals[proposals.isfinite().flatten(1).all(1)]:
            T = self.knowledge.with_held(T, self.source.middle)
            T = refine(rough.source, rough.target, T, reaches, self.knowledge.hold)
            if self.knowledge.allows(T):
                fit = rough.at(T)
                self._add(Candidate((origin,), T, fit.fitness, fit.plane_rmse, rough.score(T)))

    def answer(self) -> Answer:
        """The best candidate, refined on all points, and how it fares with halves of them.

        Small clouds are their own rough ones. Where their halves spread by more than a little, the answer is the mean
        over them, which has less noise; those that settle elsewhere know nothing of this pose.
        """
        T = self.candidates[0].T_target_source if self.candidates else self.knowledge.T_initial
        fine, hold = self.fine, self.knowledge.hold
        T = refine(fine.source, fine.target, T, [FINE_REACH * fine.spacing], hold)
        settled = settle(self.source.cloud, self.target.cloud, T, fine.spacing, hold)
        rough, T = self.rough, settled.T_target_source
        halves = self._halves(T)
        is_whole = rough.source is self.source.cloud and rough.target is self.target.cloud
        if is_whole and self._spread(T, halves) > NOISY:
            near = (half for half in halves if self._is_same(half.T_target_source, settled.T_target_source))
            T = mean_pose([settled, *near], rough.spacing)
        poses = [half.T_target_source for half in halves]
        if self.knowledge.covariance is not None:
            information = fine.at(T).information
            both = (self.knowledge.combined(each, information) for each in (T, *poses))
            T, *poses = (self.knowledge.with_held(each, self.source.middle) for each in both)
        return Answer(self, T, tuple(poses))

    def rival(self, T: Tensor) -> float:
        """The score of the best candidate that is another pose than T (4, 4), zero if there is none."""
        return max((each.score for each in self.candidates if not self._is_same(each.T_target_source, T)), default=0.0)

    def agreeing(self, T: Tensor) -> int:
        """How many different proposers came to the pose T (4, 4)."""
        same = (each for each in self.candidates if self._is_same(each.T_target_source, T))
        return len({origin for each in same for origin in each.origins})

    def _halves(self, T: Tensor) -> list[Settled]:
        """Where halves of the points settle from a pose (4, 4); of more cuts where the first ones spread wide."""
        rough = self.rough
        settle_all = partial(settled_halves, rough.source, rough.target, T, rough.spacing, self.knowledge.hold)
        halves = settle_all(cuts=range(CUTS))
        if halves and self._spread(T, halves) > WIDE:
            halves += settle_all(cuts=range(CUTS, 2 * CUTS))
        return halves

    def _spread(self, T: Tensor, halves: Sequence[Settled]) -> float:
        """How far halves lie from a pose (4, 4), in units of what a right answer may be off; infinite if unknown."""
        sight = self.rough.at(T).visibility
        poses = [half.T_target_source for half in halves]
        spread = spread_about(T, poses, sight, self.knowledge.still_open(sight, T))
        return math.inf if spread is None else in_tolerances(*spread, self.target.size)

    def _add(self, candidate: Candidate) -> None:
        """Of candidates that are the same pose, the better one stays, in the name of all who proposed it."""
        is_same = [self._is_same(candidate.T_target_source, other.T_target_source) for other in self.candidates]
        same = [other for other, same in zip(self.candidates, is_same, strict=True) if same]
        others = [other for other, same in zip(self.candidates, is_same, strict=True) if not same]
        best = max([candidate, *same], key=lambda each: each.score)
        origins = dict.fromkeys(origin for each in (*same, candidate) for origin in each.origins)
        self.candidates = sorted([replace(best, origins=tuple(origins)), *others], key=lambda each: -each.score)

    def _is_same(self, T: Tensor, T_other: Tensor) -> bool:
        return is_close(T, T_other, self.target.middle, self.target.size, SweepSettings())


@dataclass(frozen=True)
class Answer:
    """A pose (4, 4) between the centred scans, and what speaks for it."""

    search: Search
    T: Tensor
    halves: tuple[Tensor, ...]
    """The same of halves of the points, as far as it is known."""

    @cached_property
    def fit(self) -> Fit:
        return self.search.fine.at(self.T)

    @cached_property
    def open_directions(self) -> Tensor:
        """(D, 6) the motions that the pairs do not see, sorted into slides and turns."""
        return canonical(self.fit.visibility.open)

    @cached_property
    def information(self) -> tuple[Tensor, Tensor]:
        """(6, 6) information and covariance, the initial pose taken into account."""
        return self.search.knowledge.combined_information(self.T, self.fit.information, self.fit.visibility)

    @cached_property
    def still_open(self) -> Tensor:
        """(D, 6) those that are not held either."""
        return self.search.knowledge.still_open(self.fit.visibility, self.T)

    @cached_property
    def spread(self) -> Spread | None:
        """How far halves lie from it, and, where neither pairs nor held directions say, the initial pose may."""
        sight = self.fit.visibility
        spread = spread_about(self.T, self.halves, sight, self.still_open)
        if spread is None or self.search.knowledge.covariance is None:
            return spread
        unseen = self.still_open.mT @ self.still_open @ sight.motions
        variances = (unseen @ self.information[1] @ unseen.mT).diagonal()
        turn, shift = (float(part.sum().clamp(min=0).sqrt()) for part in (variances[:3], variances[3:]))
        return Spread(math.hypot(spread.angle, turn), math.hypot(spread.shift, sight.scale * shift))

    @cached_property
    def evidence(self) -> Evidence:
        search, fit = self.search, self.fit
        return Evidence(
            score=search.rough.score(self.T),
            rival=search.rival(self.T),
            agreeing=search.agreeing(self.T),
            normal_agreement=fit.normal_agreement,
            fitness=fit.fitness,
            size_ratio=search.source.size / search.target.size if search.target.size > 0 else 0.0,
            open_directions=len(self.still_open) if search.knowledge.covariance is None else 0,
            spread=in_tolerances(*self.spread, search.target.size) if self.spread else math.inf,
        )

    @property
    def is_convincing(self) -> bool:
        return not reservations(self.evidence)

    def result(self, timings: Mapping[str, float]) -> Registration:
        """In the coordinates of the scans that came."""
        search, fit = self.search, self.fit
        visibility = fit.visibility
        information, covariance = self.information
        to_origin = about_origin(search.target.center)
        to_center = about_origin(-search.target.center)
        center, size = visibility.center + search.target.center, search.target.size
        directions = self.open_directions
        in_sizes = torch.cat([directions[:, :3], directions[:, 3:] * visibility.scale / (size or 1.0)], dim=1)
        doubts = reservations(self.evidence)
        return Registration(
            T_target_source=self._given(self.T),
            confident=not doubts,
            confidence=probability(self.evidence),
            evidence=self.evidence,
            fitness=fit.fitness,
            inlier_rmse=fit.inlier_rmse,
            plane_rmse=fit.plane_rmse,
            normal_agreement=fit.normal_agreement,
            inlier_distance=fit.overlap.inlier_distance,
            information=to_center.mT @ information @ to_center,
            covariance=to_origin @ covariance @ to_origin.mT,
            spread=self.spread,
            undetermined=in_words(directions, center, visibility.scale),
            directions=in_sizes,
            eigenvalues=visibility.eigenvalues.clamp(min=0),
            center=center,
            size=size,
            warnings=(*self._notes(), *doubts),
            timings=timings,
            candidates=tuple(
                replace(each, T_target_source=self._given(each.T_target_source)) for each in search.candidates
            ),
            source=_shifted(fit.overlap.source, search.source.center),
            target=_shifted(fit.overlap.target, search.target.center),
            matches=fit.matches,
        )

    def _given(self, T: Tensor) -> Tensor:
        return self.search.target.T_given_local @ T @ self.search.source.T_local_given

    def _notes(self) -> list[str]:
        notes = []
        for name, scan in (("source", self.search.source), ("target", self.search.target)):
            if scan.dropped:
                notes.append(f"{scan.dropped} of {scan.given} points of the {name} are not finite and were left out")
        return notes


def _shifted(cloud: Cloud, by: Tensor) -> Cloud:
    return replace(cloud, points=cloud.points + by)
