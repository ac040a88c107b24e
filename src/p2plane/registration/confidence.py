"""Whether an answer may be used: what speaks for and against it, weighed."""

from __future__ import annotations

import math
from dataclasses import dataclass

CONFIDENT = 0.9
OTHER_UNIT = 8.0  # clouds that differ this much in size are hardly in the same unit
CLOSE_RIVAL = 0.9


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
    """How many motions the geometry leaves open."""

    @property
    def rivalry(self) -> float:
        """Score of the rival over that of the answer."""
        return min(self.rival / self.score, 1.5) if self.score > 0 else 1.5

    def features(self) -> tuple[float, ...]:
        """What `WEIGHTS` belong to."""
        return self.score, self.normal_agreement, min(self.rivalry, 1.0) ** 4, float(self.agreeing > 1)


# Fitted by benchmarks/confidence.py to 200 pairs of training shapes and of a made-up room: --pairs 40 of cpu-noisy-so3,
# --pairs 20 of cpu-noisy, icl-nuim and depth. Normals that agree ask for a higher score: the score of noisy ones is low
# even where the pose is right.
BIAS = 1.46
WEIGHTS = (74.50, -34.81, -7.13, 5.60)
RIVALRY = 16  # how sharply a rival as good as the answer turns it into a coin toss


def probability(evidence: Evidence) -> float:
    """That an answer with this evidence is right, in [0, 1]; zero where the geometry leaves directions open."""
    if evidence.open_directions or evidence.fitness == 0:
        return 0.0
    logit = BIAS + sum(weight * feature for weight, feature in zip(WEIGHTS, evidence.features(), strict=True))
    one_of_two = 1 - 0.5 * min(1.0, evidence.rivalry) ** RIVALRY
    return one_of_two / (1 + math.exp(-max(-50.0, min(50.0, logit))))


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
    if probability(evidence) < CONFIDENT and not evidence.open_directions:
        reasons.append(f"{evidence.fitness:.0%} of the source found a partner, which does not settle the pose")
        if evidence.rivalry > CLOSE_RIVAL:
            reasons.append("another pose fits about as well: the shape may be symmetric")
    return tuple(reasons)
