"""Poses of halves say how far the pose of all points may be off, and their mean is a better one."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from p2plane import register
from p2plane.data.cloud import Cloud
from p2plane.data.pair import Pair
from p2plane.data.pairs import PairDataset
from p2plane.data.synthetic import SyntheticShapes
from p2plane.geometry import se3
from p2plane.registration import answer
from p2plane.registration.answer import Answer, Search
from p2plane.registration.check import Overlap
from p2plane.registration.knowledge import Knowledge
from p2plane.registration.refine import Settled, settle
from p2plane.registration.result import Registration, Spread
from p2plane.registration.scan import prepare
from p2plane.registration.spread import CUTS, mean_pose, settled_halves, spread_about
from p2plane.registration.summary import summary
from tests.registration.scenes import scan

PAIRS = 100


def clouds_of(pair: Pair) -> tuple[Cloud, Cloud]:
    return (
        Cloud(pair.source.double(), pair.source_normals.double()),
        Cloud(pair.target.double(), pair.target_normals.double()),
    )


def angle_between(T: Tensor, T_other: Tensor) -> float:
    return float(se3.log(T @ se3.inverse(T_other))[:3].norm())


def spread_of(source: Cloud, target: Cloud, halves: list[Settled], T: Tensor) -> Spread | None:
    sight = Overlap(source, target).at(T).visibility
    return spread_about(T, [half.T_target_source for half in halves], sight, sight.open)


def root_mean_square(values: list[float]) -> float:
    return math.sqrt(sum(value**2 for value in values) / len(values))


@pytest.fixture(scope="module")
def noisy() -> list[dict[str, float]]:
    """Errors of the pose of all points and of the mean over halves, and the spread, over some noisy pairs."""
    rows = []
    data = PairDataset(SyntheticShapes("test"), "cpu-noisy", seed=3)
    for index in range(PAIRS):
        pair = data[index]
        source, target = clouds_of(pair)
        T_true, spacing = pair.T_target_source.double(), Overlap(source, target).spacing
        settled = settle(source, target, T_true, spacing)
        halves = settled_halves(source, target, settled.T_target_source, spacing)
        T_mean = mean_pose([settled, *halves], spacing)
        spread = spread_of(source, target, halves, T_mean)
        assert spread is not None
        errors = {"alone": settled.T_target_source, "mean": T_mean}
        rows.append({name: angle_between(T, T_true) for name, T in errors.items()} | {"spread": spread.angle})
    return rows


def test_the_spread_is_as_large_as_the_error(noisy):
    error, spread = (root_mean_square([row[name] for row in noisy]) for name in ("mean", "spread"))
    assert 0.6 < spread / error < 1.7


def test_the_mean_over_halves_is_nearer_to_the_truth(noisy):
    mean, alone = (root_mean_square([row[name] for row in noisy]) for name in ("mean", "alone"))
    assert mean < alone


def test_points_that_coincide_leave_no_spread():
    pair = PairDataset(SyntheticShapes("test"), "cpu", seed=3)[0]
    source = clouds_of(pair)[0]
    T_true = se3.random(generator=torch.Generator().manual_seed(0)).double()
    target = source.moved(T_true)
    spacing = Overlap(source, target).spacing
    halves = settled_halves(source, target, T_true, spacing)
    settled = settle(source, target, T_true, spacing)
    torch.testing.assert_close(mean_pose([settled, *halves], spacing), T_true, atol=1e-6, rtol=0)
    spread = spread_of(source, target, halves, T_true)
    assert spread is not None
    assert max(spread) < 1e-5


def test_exact_poses_outweigh_the_others():
    one, other = (se3.exp(torch.tensor([0, 0, angle, 0, 0, 0], dtype=torch.float64)) for angle in (0.0, 0.1))
    near = mean_pose([Settled(one, 1e-6), Settled(other, 0.3)], spacing=1.0)
    halfway = mean_pose([Settled(one, 0.3), Settled(other, 0.3)], spacing=1.0)
    assert angle_between(near, one) < 1e-4
    assert angle_between(halfway, one) == pytest.approx(0.05)


def test_halves_that_settle_elsewhere_do_not_move_the_answer(monkeypatch):
    pair = PairDataset(SyntheticShapes("test"), "cpu-noisy", seed=3)[0]
    T_true = pair.T_target_source.double()
    elsewhere = Settled(se3.exp(torch.tensor([0, 0, 1.0, 0, 0, 0], dtype=torch.float64)) @ T_true, 1e-9)
    monkeypatch.setattr(answer, "settled_halves", lambda *_, **__: [elsewhere])
    result = register(*clouds_of(pair), method="initial", initial=T_true)
    assert angle_between(result.T_target_source, T_true) < math.radians(3)
    assert result.spread is not None
    assert result.spread.angle > 0.9
    assert not result.confident


@pytest.mark.parametrize("count", [6, 7, 12])
def test_so_few_pairs_say_nothing_of_their_noise(count):
    points = torch.rand(count, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    normals = torch.nn.functional.normalize(points, dim=-1)
    cloud, T = Cloud(points, normals), torch.eye(4, dtype=torch.float64)
    settled = settle(cloud, cloud, T, spacing=0.1)
    assert (settled.deviation == math.inf) == (count <= 6)
    unknown = Settled(se3.exp(torch.tensor([0, 0, 0.3, 0, 0, 0], dtype=torch.float64)), math.inf)
    assert torch.equal(mean_pose([settled, unknown], 0.1), settled.T_target_source)


def test_moving_both_scans_leaves_the_spread():
    pair = PairDataset(SyntheticShapes("test"), "cpu-noisy", seed=3)[0]
    source, target = clouds_of(pair)
    T = pair.T_target_source.double()
    T_one, T_two = (se3.random(generator=torch.Generator().manual_seed(seed)).double() for seed in (1, 2))
    spreads = [
        spread_of(one, two, settled_halves(one, two, start, 0.04), start)
        for one, two, start in (
            (source, target, T),
            (source.moved(T_one), target.moved(T_two), T_two @ T @ se3.inverse(T_one)),
        )
    ]
    assert spreads[0] is not None
    torch.testing.assert_close(torch.tensor(spreads[0]), torch.tensor(spreads[1]), rtol=0.01, atol=0)


@pytest.fixture(scope="module")
def rooms() -> tuple[Tensor, Tensor, Registration]:
    source, target = scan("room", 1), scan("room", 2)
    return source, target, register(source, target, method="initial")


def test_the_order_of_points_does_not_matter(rooms):
    source, target, result = rooms
    random = torch.Generator().manual_seed(0)
    one, two = (points[torch.randperm(len(points), generator=random)] for points in (source, target))
    shuffled = register(one, two, method="initial")
    torch.testing.assert_close(shuffled.T_target_source, result.T_target_source, atol=1e-9, rtol=0)
    assert shuffled.confidence == pytest.approx(result.confidence)


def test_swapping_the_scans_inverts_the_answer(rooms):
    source, target, result = rooms
    back = register(target, source, method="initial")
    assert max(se3.log(back.T_target_source @ result.T_target_source).abs()) < 0.2 * max(result.spread)


@pytest.mark.parametrize("scene", ["wall", "corridor", "sphere"])
def test_directions_that_are_open_do_not_spread(scene):
    """The pairs see nothing along them; what the wall shows, its halves agree on."""
    result = register(scan(scene, 1), scan(scene, 2), method="initial")
    assert result.undetermined
    assert result.spread is not None
    assert result.evidence.spread < 0.1


def test_scans_without_partners_have_no_spread():
    result = register(scan("room", 1), scan("room", 2) + 30.0, method="initial", initial=torch.eye(4))
    assert result.fitness == 0
    assert result.spread is None
    assert result.evidence.spread == math.inf


def test_what_the_initial_pose_says_of_open_directions_counts():
    """Its own deviation where pairs see nothing; where they see, theirs."""
    initial, source, target = torch.eye(4), scan("corridor", 1), scan("corridor", 2)
    for deviation, is_enough in ((0.05, True), (2.0, False)):
        result = register(
            source, target, method="initial", initial=initial, initial_covariance=deviation**2 * torch.eye(6)
        )
        assert result.spread is not None
        assert result.spread.shift == pytest.approx(deviation, rel=0.1)
        assert result.spread.angle < 0.01
        assert result.confident == is_enough


@pytest.fixture(scope="module")
def slopes() -> list[Answer]:
    """Of three fins, and of an egg that is nearly a ball and turns almost freely, though all directions are seen."""
    generator = torch.Generator().manual_seed(0)
    fins = torch.rand(600, 3, generator=generator, dtype=torch.float64) - 0.5
    fins[:200, 0], fins[200:400, 1], fins[400:, 2] = 0.0, 0.0, 0.0
    ball = torch.nn.functional.normalize(torch.randn(600, 3, generator=generator, dtype=torch.float64), dim=-1) / 2
    answers = []
    for shape in (fins, ball * torch.tensor([0.7, 0.84, 1.0])):
        noise = 0.01 * torch.randn(2, 600, 3, generator=generator, dtype=torch.float64)
        source, target = (prepare(name, shape + each, 1000) for name, each in zip(("one", "other"), noise, strict=True))
        answers.append(Search(source, target, Knowledge(torch.eye(4, dtype=torch.float64))).answer())
    return answers


def test_gentle_slopes_spread_more(slopes):
    assert not any(len(each.open_directions) for each in slopes)
    steep, gentle = (each.spread.angle for each in slopes)
    assert gentle > 3 * steep


def test_halves_that_spread_wide_are_cut_as_often_again(slopes):
    assert [len(each.halves) for each in slopes] == [2 * CUTS, 4 * CUTS]
    assert len(torch.stack(slopes[1].halves).flatten(1).unique(dim=0)) == 4 * CUTS


def test_the_mean_over_halves_is_for_noise_alone(monkeypatch):
    taken = []
    monkeypatch.setattr(
        answer, "mean_pose", lambda settled, _: taken.append(len(settled)) or settled[0].T_target_source
    )
    register(scan("room", 1), scan("room", 2), method="initial")
    assert not taken
    pair = PairDataset(SyntheticShapes("test"), "cpu-noisy", seed=3)[0]
    register(*clouds_of(pair), method="initial", initial=pair.T_target_source)
    assert taken


def test_a_handful_of_points_has_no_halves():
    generator = torch.Generator().manual_seed(0)
    points, normals = torch.rand(11, 3, generator=generator), torch.randn(11, 3, generator=generator)
    cloud = Cloud(points, torch.nn.functional.normalize(normals, dim=-1))
    result = register(cloud, cloud, method="initial")
    assert not result.undetermined
    assert result.spread is None
    assert not result.confident
    assert summary(result)["spread_angle_deg"] is None
    assert "too few points to say how far the pose may be off" in result.warnings
