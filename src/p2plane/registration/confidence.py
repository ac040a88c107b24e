"""Whether an answer may be used: what speaks for and against it, weighed."""

from __future__ import annotations

import math
from dataclasses import dataclass

CONFIDENT = 0.96
OTHER_UNIT = 8.0  # clouds that differ this much in size are hardly in the same unit
CLOSE_RIVAL = 0.9
CLOSE_COUNTS, EQUAL_COUNTS = 4, 64  # powers of the rivalry: a close rival lowers the odds, an equal one leaves a half
LEAST_SCORE, LEAST_DISAGREEMENT, LARGEST_SPREAD = 0.01, 0.05, 3.0
TURN_ALLOWED, SHIFT_ALLOWED = math.radians(5), 0.05  # an answer that is off by more, in radians and sizes, is wrong


@dataclass(frozen=True)
class Evidence:
    """What is known about an answer."""

    score: float
    """How much of both clouds fits, normals included, in [0, 1]."""
    rival: float
    """Score of the best candidate that is another pose; zero if there is none."""
    agreeing: int
    """How many searches of different kinds came to this pose."""
    normal_agreement: float
    """Median |cos| between the normals of partners."""
    fitness: float
    """Share of the source that has a partner."""
    size_ratio: float
    """Size of the source over that of the target."""
    open_directions: int
    """How many motions the geometry leaves open, and nothing else determines."""
    spread: float
    """`Registration.spread` in units of what a right answer may be off; infinite if unknown."""

    @property
    def rivalry(self) -> float:
        """Score of the rival over that of the answer, at most one."""
        return min(self.rival / self.score, 1.0) if self.score > 0 else 1.0

    def features(self) -> tuple[float, ...]:
        """What `WEIGHTS` belong to."""
        score, disagreement = max(self.score, LEAST_SCORE), 1 - self.normal_agreement + LEAST_DISAGREEMENT
        rival, spread = self.rivalry**CLOSE_COUNTS, min(self.spread, LARGEST_SPREAD)
        return math.log(score), math.log(disagreement), rival, float(self.agreeing > 1), spread

    @property
    def precision(self) -> float:
        """How likely a pose that is nearly right is right: errors of poses, in spreads, are about log-logistic."""
        return 1 / (1 + min(self.spread / COIN_TOSS_SPREAD, 1e9) ** STEEPNESS)


def in_tolerances(turn: float, shift: float, size: float) -> float:
    """A turn and a shift, root mean square, in units of what a right answer may be off; see `Evidence.spread`."""
    return math.hypot(turn / TURN_ALLOWED, shift / (SHIFT_ALLOWED * size)) if size > 0 else math.inf


# Fitted by benchmarks/confidence.py to 1,960 pairs of training shapes and frames and of a made-up room: --pairs 1000
# --different 60 of cpu-noisy-so3, 300 and 60 of cpu-noisy, 150 and 60 of icl-nuim and of depth, 100 and 20 of cpu.
# Normals that agree ask for a higher score: the score of noisy ones is low even where the pose is right.
BIAS = 40.02
WEIGHTS = (19.92, 8.13, -2.95, 1.38, -6.08)
COIN_TOSS_SPREAD, STEEPNESS = 1.47, 3.86


def probability(evidence: Evidence) -> float:
    """That an answer with this evidence is right, in [0, 1]; zero where directions are open.

    It is if the search found the right place, which is not that of a rival, and if the points are good enough for it.
    """
    if evidence.open_directions or evidence.fitness == 0:
        return 0.0
    logit = BIAS + sum(weight * feature for weight, feature in zip(WEIGHTS, evidence.features(), strict=True))
    found = 1 / (1 + math.exp(-max(-50.0, min(50.0, logit))))
    one_of_two = 1 - 0.5 * evidence.rivalry**EQUAL_COUNTS
    return found * one_of_two * evidence.precision


def reservations(evidence: Evidence) -> tuple[str, ...]:
    """Why an answer is not to be trusted, in words; empty where it is."""
    reasons = []
    ratio = max(evidence.size_ratio, 1 / evidence.size_ratio) if evidence.size_ratio > 0 else math.inf
    if ratio > OTHER_UNIT:
        reasons.append(f"one scan is {ratio:.3g} times as large as the other: are they in the same unit?")
    if evidence.fitness == 0:
        return (*reasons, "no part of the source fits any part of the target")
    if evidence.open_directions:
        reasons.append(f"the geometry leaves {evidence.open_directions} of 6 directions open")
    if not probability(evidence) >= CONFIDENT and not evidence.open_directions:
        reasons.append(f"{evidence.fitness:.0%} of the source found a partner, which does not settle the pose")
        if evidence.spread == math.inf:
            reasons.append("too few points to say how far the pose may be off")
        elif evidence.precision < CONFIDENT:
            reasons.append(
                "the pose may be off by too much: halves of the points lead apart, or the initial pose is unsure"
            )
        if evidence.rivalry > CLOSE_RIVAL:
            reasons.append("another pose fits about as well: the shape may be symmetric")
    return tuple(reasons)
