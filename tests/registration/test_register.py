"""Two scans in any pose: the right answer, or an honest word."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from p2plane import Cloud, load_cloud, save_cloud, se3, so3
from p2plane.data.pairs import PairDataset
from p2plane.data.synthetic import SyntheticShapes
from p2plane.registration import register
from p2plane.registration.proposals import Opinion, plan
from p2plane.registration.result import Registration
from tests.registration.scenes import errors, motion, scan


@pytest.fixture(scope="module")
def found() -> tuple[Registration, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two scans of a room, the first moved at random, and what `register` says of them."""
    T_moved = motion(1)
    source, target = se3.apply(T_moved, scan("room", 1)), scan("room", 2)
    return register(source, target, method="sweep"), se3.inverse(T_moved), source, target


def test_any_motion_is_found_and_trusted(found):
    result, T_true, source, _ = found
    angle, shift = errors(result, T_true, source.mean(0))
    assert angle < 0.5
    assert shift < 0.01
    assert result.confident
    assert result.undetermined == ()
    assert result.fitness > 0.9


def test_the_result_describes_its_own_pose(found):
    result, _, source, _ = found
    moved = se3.apply(result.T_target_source, result.source.points[result.matches.source])
    partners = result.target.points[result.matches.target]
    assert (moved - partners).norm(dim=-1).max() <= result.inlier_distance * (1 + 1e-9)
    assert result.inlier_rmse == pytest.approx(float((moved - partners).square().sum(-1).mean().sqrt()))
    heights = ((moved - partners) * result.target.normals[result.matches.target]).sum(-1)
    torch.testing.assert_close(result.matches.residuals, heights)
    torch.testing.assert_close(
        result.covariance @ result.information, torch.eye(6, dtype=torch.float64), atol=1e-4, rtol=0
    )
    assert result.candidates[0].score == max(each.score for each in result.candidates)
    assert set(result.timings) >= {"prepare", "sweep", "weigh", "refine"}
    assert len(result.source) <= len(source)


def test_a_result_prints_in_a_few_lines(found):
    text = repr(found[0])
    assert "confident=True" in text
    assert "T_target_source=[[" in text
    assert len(text.splitlines()) < 12


def test_a_network_proposes_too(found):
    _, T_true, source, target = found
    result = register(source, target, method="tessera", initial=T_true)
    assert [each.origins for each in result.candidates] == [("tessera",)]
    assert set(result.timings) == {"prepare", "tessera", "weigh", "refine"}


def test_scans_with_little_in_common_get_a_closer_look():
    pair = PairDataset(SyntheticShapes("test", shapes_per_category=1), "cpu-noisy-so3", seed=1)[28]
    clouds = Cloud(pair.source, pair.source_normals), Cloud(pair.target, pair.target_normals)
    result = register(*clouds, method="sweep")
    assert "finer sweep" in result.timings
    assert math.degrees(so3.log(result.T_target_source[:3, :3] @ pair.T_target_source[:3, :3].mT.double()).norm()) < 2


def test_moving_a_scan_far_away_moves_the_answer(found):
    result, _, source, target = found
    shift = torch.tensor([4e5, 5e6, 100.0], dtype=torch.float64)
    far = register(source, target + shift, method="sweep")
    torch.testing.assert_close(far.R, result.R, atol=1e-5, rtol=0)
    torch.testing.assert_close(far.t - shift, result.t, atol=1e-4, rtol=0)
    # The covariance is about the target's origin, so it knows of the lever; in the middle nothing changed.
    lever = torch.cat([-so3.hat(far.center), torch.eye(3, dtype=torch.float64)], dim=1)
    near_lever = torch.cat([-so3.hat(result.center), torch.eye(3, dtype=torch.float64)], dim=1)
    torch.testing.assert_close(
        lever @ far.covariance @ lever.mT, near_lever @ result.covariance @ near_lever.mT, rtol=1e-2, atol=1e-9
    )


def test_another_unit_changes_nothing_but_the_unit(found):
    result, _, source, target = found
    millimetres = register(1000 * source, 1000 * target, method="sweep")
    torch.testing.assert_close(millimetres.R, result.R, atol=1e-6, rtol=0)
    torch.testing.assert_close(millimetres.t, 1000 * result.t, atol=1e-2, rtol=0)
    assert millimetres.plane_rmse == pytest.approx(1000 * result.plane_rmse, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wall", {"slides along x", "slides along z", "turns about y"}),
        ("corridor", {"slides along y"}),
        ("sphere", {"turns about x", "turns about y", "turns about z"}),
    ],
)
def test_what_the_geometry_leaves_open_is_named(name, words):
    result = register(se3.apply(motion(2), scan(name, 1)), scan(name, 2), method="sweep")
    assert {word.split(" through")[0] for word in result.undetermined} == words
    assert len(result.directions) == len(words)
    assert not result.confident
    assert result.confidence == 0
    assert any("open" in warning for warning in result.warnings)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (torch.zeros(1, 3), torch.ones(1, 3)),
        (torch.zeros(300, 3), torch.zeros(300, 3)),
        (torch.rand(300, 1) * torch.tensor([1.0, 2.0, 3.0]), torch.rand(300, 1) * torch.tensor([1.0, 2.0, 3.0])),
        (torch.zeros(1, 3), scan("room", 1)),
        (torch.randn(5, 3), torch.randn(5, 3)),
        (1000 * scan("room", 1), scan("room", 2)),
        (scan("room", 1), 2 * scan("sphere", 1)),
    ],
    ids=["one point each", "all points equal", "line", "one point", "five points", "mm against m", "no overlap"],
)
def test_what_cannot_be_answered_is_not_trusted(source, target):
    result = register(source, target, method="sweep")
    assert not result.confident
    assert result.warnings
    for tensor in (result.T_target_source, result.covariance, result.information, result.directions):
        assert tensor.isfinite().all()
    torch.testing.assert_close(result.R @ result.R.mT, torch.eye(3, dtype=torch.float64))


def test_proposals_that_are_no_numbers_are_passed_over(monkeypatch):
    """As networks make them of coordinates around 1e30."""
    opinions = [Opinion("lost", "lost", lambda *_: torch.full((2, 4, 4), math.nan)), *plan("sweep")]
    monkeypatch.setattr("p2plane.registration.pipeline.plan", lambda method: opinions)
    points = scan("room", 1)
    result = register(points, se3.apply(motion(1), points))
    assert result.confident
    torch.testing.assert_close(result.T_target_source, motion(1), atol=1e-3, rtol=0)


def test_a_shape_that_turns_into_itself_is_not_trusted():
    random = torch.Generator().manual_seed(0)

    def cube() -> torch.Tensor:
        points = torch.rand(1500, 3, generator=random, dtype=torch.float64)
        axis = torch.randint(0, 3, (1500, 1), generator=random)
        return points.scatter(1, axis, torch.randint(0, 2, (1500, 1), generator=random).double())

    result = register(se3.apply(motion(3), cube()), cube(), method="sweep")
    assert not result.confident
    assert any("another pose" in warning for warning in result.warnings)


def test_files_arrays_clouds_and_tensors_are_the_same_scan(tmp_path, found):
    result, _, source, target = found
    save_cloud(tmp_path / "source.ply", Cloud(source))
    np.savetxt(tmp_path / "target.xyz", target.numpy(), fmt="%.17g")
    again = register(tmp_path / "source.ply", str(tmp_path / "target.xyz"), method="sweep")
    torch.testing.assert_close(again.T_target_source, result.T_target_source, atol=1e-9, rtol=0)
    arrays = register(source.numpy(), Cloud(target), method="sweep")
    torch.testing.assert_close(arrays.T_target_source, result.T_target_source, atol=1e-9, rtol=0)
    assert len(load_cloud(tmp_path / "source.ply")) == len(source)


def test_points_that_are_not_finite_are_left_out_and_said(found):
    result, _, source, target = found
    broken = torch.cat([source, torch.full((7, 3), float("nan"), dtype=torch.float64)])
    again = register(broken, target, method="sweep")
    torch.testing.assert_close(again.T_target_source, result.T_target_source)
    assert any("7 of" in warning for warning in again.warnings)


def test_a_prior_settles_what_the_geometry_leaves_open():
    T_true = se3.from_rotation_translation(
        so3.exp(torch.tensor([0.02, -0.01, 0.03], dtype=torch.float64)),
        torch.tensor([0.05, 0.1, -0.02], dtype=torch.float64),
    )
    source, target = se3.apply(se3.inverse(T_true), scan("corridor", 1)), scan("corridor", 2)
    covariance = torch.diag(torch.tensor([0.05, 0.05, 0.05, 0.1, 0.02, 0.1], dtype=torch.float64)).square()
    initial = torch.eye(4, dtype=torch.float64)
    initial[1, 3] = T_true[1, 3]
    result = register(source, target, method="sweep", initial=initial, initial_covariance=covariance)
    angle, shift = errors(result, T_true, source.mean(0))
    assert angle < 1.0
    assert shift < 0.1
    assert result.covariance[4, 4] > 0.25 * 0.02**2  # along the corridor only the prior knows
    assert result.confident


def test_the_initial_pose_alone_is_refined(found):
    _, T_true, source, target = found
    nudge = se3.exp(torch.tensor([0.02, 0.01, -0.02, 0.02, 0.01, 0.0], dtype=torch.float64))
    result = register(source, target, method="initial", initial=nudge @ T_true)
    assert errors(result, T_true, source.mean(0))[0] < 0.5
    assert [each.origins for each in result.candidates] == [("initial",)]


def test_the_same_call_gives_the_same_answer(found):
    result, _, source, target = found
    again = register(source, target, method="sweep")
    assert torch.equal(again.T_target_source, result.T_target_source)
    assert again.confidence == result.confidence


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": torch.zeros(4, 2)}, "source must be an array of shape"),
        ({"source": torch.full((4, 3), float("nan"))}, "source must hold at least one finite point"),
        ({"target": 3}, "target must be a file"),
        ({"max_points": 0}, "max_points must be a positive integer"),
        ({"time_limit": 0.0}, "time_limit must be positive"),
        ({"hold": ("rx",)}, "hold must name none, two or all"),
        ({"initial": torch.zeros(4, 4)}, "initial must be a rigid motion"),
        ({"initial_covariance": torch.eye(6)}, "initial_covariance must go with initial"),
        ({"initial": torch.eye(4), "initial_covariance": -torch.eye(6)}, "initial_covariance must be symmetric"),
        ({"method": "magic"}, "magic"),
    ],
)
def test_bad_input_is_named(arguments, message):
    given = {"source": scan("room", 1), "target": scan("room", 2)} | arguments
    with pytest.raises(ValueError, match=message):
        register(given.pop("source"), given.pop("target"), **given)


def test_a_missing_file_is_named():
    with pytest.raises(OSError, match=r"nowhere\.ply"):
        register("nowhere.ply", scan("room", 1))


def test_a_thinned_cloud_is_as_good(found):
    result, T_true, source, target = found
    thin = register(source, target, method="sweep", max_points=800)
    assert errors(thin, T_true, source.mean(0))[0] < 1.0
    assert len(thin.source) <= 800
    assert replace(thin, timings={}).fitness > 0.8
    assert result.fitness > 0.8
