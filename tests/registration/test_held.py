"""Directions that are held keep what the initial pose has, whoever proposes poses and wherever the scans lie."""

from __future__ import annotations

import pytest
import torch

from p2plane import register
from p2plane.classical.icp import icp
from p2plane.geometry import se3, so3
from p2plane.registration import pipeline
from p2plane.registration.proposals import Opinion
from p2plane.solve.inputs import DIRECTIONS
from tests.registration.scenes import errors, motion, scan


def test_held_directions_keep_what_the_initial_pose_has():
    turn = so3.exp(torch.tensor([0.0, 0.0, 2.0], dtype=torch.float64))
    T_true = se3.from_rotation_translation(turn, torch.tensor([0.4, -0.3, 0.2], dtype=torch.float64))
    source, target = se3.apply(se3.inverse(T_true), scan("room", 1)), scan("room", 2)
    initial = torch.eye(4, dtype=torch.float64)
    initial[2, 3] = 0.2
    result = register(source, target, method="sweep", initial=initial, hold=("rx", "ry", "tz"))
    angle, shift = errors(result, T_true, source.mean(0))
    assert angle < 0.5
    assert shift < 0.01
    assert result.T_target_source[2, 3] == pytest.approx(0.2, abs=1e-9)
    torch.testing.assert_close(result.R[2], torch.tensor([0, 0, 1.0], dtype=torch.float64))
    assert result.confident
    deviations = result.covariance.diagonal().sqrt()
    assert deviations[2] > 1e-5
    assert max(deviations[:2]) < 1e-3 * deviations[2]


def test_what_is_held_is_not_open():
    source, target = scan("corridor", 1), scan("corridor", 2)
    held = register(source, target, method="initial", hold=("ty",))
    assert held.undetermined == ("slides along y",)  # which is what the pairs say
    assert held.confident
    assert not register(source, target, method="initial", hold=("tx",)).confident


@pytest.mark.parametrize("hold", ["tx", ("tx", "ty", "tz"), ("rx", "ry", "tz")])
def test_what_is_held_is_held_between_the_given_frames(hold):
    """Wherever the scans lie: moved to their middles, t would be another as soon as R is."""
    away = torch.tensor([5.0, 3.0, 1.0], dtype=torch.float64)
    turn = so3.about_axis(2, torch.tensor(0.05, dtype=torch.float64))
    source, target = scan("room", 1) + away, (scan("room", 2) + away) @ turn.mT
    result = register(source, target, method="initial", hold=hold)
    assert result.confident
    assert max(abs(result.t["xyz".index(axis)]) for axis in "xyz" if f"t{axis}" in hold) < 1e-9
    assert max(so3.log(result.R @ turn.mT).abs()) < 0.002


@pytest.mark.parametrize("hold", [("rx", "ry", "tz"), ("rx", "ry"), ("rx", "ry", "rz", "tx")])
def test_what_is_held_far_from_the_origin_is_found_as_well(hold):
    """In the coordinates of a map a turn moves everything; scans are moved to their middles wherever that may be."""
    far = torch.tensor([4e5, 5e5, 100.0], dtype=torch.float64)
    turn = so3.about_axis(2, torch.tensor(0.03 if "rz" not in hold else 0.0, dtype=torch.float64))
    # About the middle, and along what is free.
    shift = torch.tensor([0.0 if "tx" in hold else 0.05, 0.02, 0.0], dtype=torch.float64)
    T_true = se3.from_rotation_translation(turn, far - turn @ far + shift)
    source, target = scan("room", 1) + far, se3.apply(T_true, scan("room", 2) + far)
    result = register(source, target, method="initial", hold=hold)
    angle, shift_off = errors(result, T_true, source.mean(0))
    assert result.confident
    assert angle < 0.1
    assert shift_off < 0.01


@pytest.mark.parametrize("away", [0.0, 30.0])
def test_what_is_held_closes_a_direction_wherever_the_scans_lie(away):
    offset = torch.tensor([away, 0.0, away], dtype=torch.float64)
    held = register(scan("corridor", 1) + offset, scan("corridor", 2) + offset, method="initial", hold=("ty",))
    assert held.confident
    assert held.undetermined[0].startswith("slides along y")


def test_who_proposes_poses_need_not_know_what_is_held(monkeypatch):
    """A network or RANSAC does not. What it proposes is turned and shifted to what is held."""
    tilt = torch.tensor([0.05, 0.0, 0.02, 0.01, 0.0, 0.03], dtype=torch.float64)
    stranger = Opinion("stranger", "stranger", lambda *_: se3.exp(tilt)[None])
    monkeypatch.setattr(pipeline, "plan", lambda _: [stranger])
    result = register(scan("room", 1) + 1.0, scan("room", 2) + 1.0, hold=("rx", "ry", "tz"))
    assert result.confident
    torch.testing.assert_close(result.R[2], torch.tensor([0, 0, 1.0], dtype=torch.float64))
    assert abs(result.t[2]) < 1e-12
    assert so3.log(result.R).norm() < 0.005


@pytest.mark.parametrize("hold", [("tx",), ("rx", "ry", "tz"), ("rx", "ry", "rz"), DIRECTIONS])
def test_what_the_initial_pose_is_unsure_of_does_not_move_what_is_held(hold):
    mixed = torch.randn(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    covariance = 1e-4 * (mixed @ mixed.mT + torch.eye(6, dtype=torch.float64))
    initial = se3.exp(torch.tensor([0.01, 0.0, 0.02, 0.01, 0.02, 0.03], dtype=torch.float64))
    result = register(
        scan("room", 1), scan("room", 2), method="initial", initial=initial, initial_covariance=covariance, hold=hold
    )
    assert result.covariance.isfinite().all()
    moved = torch.cat([so3.log(result.R @ initial[:3, :3].mT), result.t - initial[:3, 3]])
    assert max(abs(moved[DIRECTIONS.index(name)]) for name in hold) < 1e-9


def test_a_pose_with_nothing_free_stays():
    T = motion(2)
    source, target = se3.apply(se3.inverse(T), scan("room", 1)), scan("room", 2)
    alignment = icp(source, target, initial=T, hold=DIRECTIONS)
    torch.testing.assert_close(alignment.T_target_source, T, atol=1e-12, rtol=0)
    result = register(source, target, method="initial", initial=T, hold=DIRECTIONS)
    torch.testing.assert_close(result.T_target_source, T, atol=1e-12, rtol=0)
    assert result.confident
