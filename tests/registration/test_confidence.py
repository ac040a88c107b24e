"""Confidence weighs what speaks for an answer and against it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from p2plane.data.cloud import Cloud
from p2plane.data.pairs import PairDataset
from p2plane.data.synthetic import SyntheticShapes
from p2plane.geometry import se3
from p2plane.registration.answer import Search
from p2plane.registration.confidence import COIN_TOSS_SPREAD, Evidence, in_tolerances, probability, reservations
from p2plane.registration.knowledge import knowledge_from
from p2plane.registration.scan import prepare

DOUBTFUL = Evidence(
    score=0.38,
    rival=0.28,
    agreeing=1,
    normal_agreement=0.86,
    fitness=0.77,
    size_ratio=1.0,
    open_directions=0,
    spread=0.4,
)


SURE = replace(DOUBTFUL, score=0.7, agreeing=3)


@pytest.mark.parametrize("better", [{"score": 0.45}, {"rival": 0.1}, {"agreeing": 2}, {"spread": 0.2}])
def test_more_evidence_makes_more_confident(better: dict) -> None:
    assert probability(replace(DOUBTFUL, **better)) > probability(DOUBTFUL)


@pytest.mark.parametrize(
    "fatal",
    [
        {"open_directions": 1},
        {"fitness": 0.0},
        {"score": 0.1},
        {"rival": 0.7},
        {"spread": 1.0},
        {"spread": math.inf},
        {"spread": math.nan},
    ],
)
def test_some_evidence_settles_it(fatal: dict) -> None:
    assert not reservations(SURE)
    assert reservations(replace(SURE, **fatal))


@pytest.mark.parametrize(
    ("doubt", "words"),
    [
        ({"spread": 1.0}, "halves of the points"),
        ({"spread": math.inf}, "too few points"),
        ({"rival": 0.7}, "another pose"),
        ({"size_ratio": 0.1}, "the same unit"),
    ],
)
def test_a_doubt_has_its_own_words(doubt: dict, words: str) -> None:
    assert not [reason for reason in reservations(replace(SURE, score=0.1, rival=0.0)) if words in reason]
    assert [reason for reason in reservations(replace(SURE, **doubt)) if words in reason]


def test_a_spread_of_even_odds_is_one_in_two() -> None:
    assert replace(SURE, spread=COIN_TOSS_SPREAD).precision == pytest.approx(0.5)
    assert replace(SURE, spread=0.0).precision == 1.0
    assert in_tolerances(0.0, 1.0, size=0.0) == math.inf


@pytest.fixture
def known() -> tuple[Search, Tensor]:
    """A search, and the true pose between its centred scans."""
    pair = PairDataset(SyntheticShapes("test", shapes_per_category=1), "cpu", seed=1)[0]
    clouds = Cloud(pair.source, pair.source_normals), Cloud(pair.target, pair.target_normals)
    source, target = (prepare(name, cloud, 10_000) for name, cloud in zip(("source", "target"), clouds, strict=True))
    search = Search(source, target, knowledge_from(None, None, (), source, target))
    given = pair.T_target_source.double()
    return search, torch.linalg.inv(target.T_given_local) @ given @ torch.linalg.inv(source.T_local_given)


def test_who_agrees_is_counted_once(known: tuple[Search, Tensor]) -> None:
    search, T = known
    off = se3.exp(torch.tensor([0.01, 0, 0, 0, 0.005, 0], dtype=torch.float64)) @ T
    search.weigh("sweep", T[None])
    search.weigh("sweep", off[None])
    assert search.agreeing(T) == 1
    search.weigh("tessera", off[None])
    assert search.agreeing(T) == 2
    assert [each.origins for each in search.candidates] == [("sweep", "tessera")]


def test_another_pose_is_no_agreement(known: tuple[Search, Tensor]) -> None:
    search, T = known
    turned = se3.exp(torch.tensor([0, 0, 2.0, 0, 0, 0], dtype=torch.float64)) @ T
    search.weigh("sweep", T[None])
    search.weigh("tessera", turned[None])
    assert search.agreeing(T) == 1
