"""The metrics against the published programs, and their own promises."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from p2plane.evaluation import metrics
from p2plane.geometry import se3, so3

ORACLE = Path(__file__).parent.parent / "oracles" / "metrics.npz"


@pytest.fixture(scope="module")
def oracle():
    arrays = {name: torch.from_numpy(np.asarray(array)) for name, array in np.load(ORACLE).items()}
    arrays["T_true"] = se3.homogeneous(arrays["in_transform_gt"]).double()
    arrays["T_estimate"] = se3.homogeneous(arrays["in_pred"]).double()
    return arrays


@pytest.mark.parametrize(
    ("published", "ours"),
    [
        ("dcp_r_mse", "rotation_mse_deg2"),
        ("dcp_r_rmse", "rotation_rmse_deg"),
        ("dcp_r_mae", "rotation_mae_deg"),
        ("dcp_r_r2", "rotation_r2"),
        ("dcp_t_mse", "translation_mse"),
        ("dcp_t_rmse", "translation_rmse"),
        ("dcp_t_mae", "translation_mae"),
        ("dcp_t_r2", "translation_r2"),
    ],
)
def test_euler_summary_is_that_of_dcp_and_prnet(oracle, published, ours):
    summary = metrics.euler_summary(oracle["T_estimate"], oracle["T_true"])
    assert summary[ours] == pytest.approx(float(oracle[published]), rel=1e-5)


@pytest.mark.parametrize(
    ("published", "ours"),
    [
        ("rpmnet_summary_r_rmse", "rotation_rmse_deg"),
        ("rpmnet_summary_r_mae", "rotation_mae_deg"),
        ("rpmnet_summary_t_rmse", "translation_rmse"),
        ("rpmnet_summary_t_mae", "translation_mae"),
    ],
)
def test_euler_summary_of_the_other_sequence_is_that_of_rpmnet(oracle, published, ours):
    summary = metrics.euler_summary(oracle["T_estimate"], oracle["T_true"], "xyz")
    assert summary[ours] == pytest.approx(float(oracle[published]), rel=1e-5)


@pytest.mark.parametrize(
    ("published", "ours"),
    [
        ("rpmnet_summary_err_r_deg_mean", "angle_mean_deg"),
        ("rpmnet_summary_err_r_deg_rmse", "angle_rms_deg"),
        ("rpmnet_summary_err_t_mean", "length_mean"),
        ("rpmnet_summary_err_t_rmse", "length_rms"),
    ],
)
def test_isotropic_summary_is_that_of_rpmnet(oracle, published, ours):
    summary = metrics.isotropic_summary(oracle["T_estimate"], oracle["T_true"])
    assert summary[ours] == pytest.approx(float(oracle[published]), rel=1e-5)


def test_errors_of_each_pair_are_those_of_rpmnet(oracle):
    T_estimate, T_true = oracle["T_estimate"], oracle["T_true"]
    by_euler = metrics.euler_errors_deg(T_estimate, T_true, "xyz")
    ours = {
        "r_mse": by_euler.square().mean(-1),
        "r_mae": by_euler.abs().mean(-1),
        "t_mse": (T_estimate - T_true)[:, :3, 3].square().mean(-1),
        "t_mae": (T_estimate - T_true)[:, :3, 3].abs().mean(-1),
        "err_r_deg": metrics.rotation_error(T_estimate, T_true).rad2deg(),
        "err_t": metrics.translation_error(T_estimate, T_true),
        "chamfer_dist": metrics.modified_chamfer(
            T_estimate, T_true, *(oracle[f"in_points_{name}"].double() for name in ("src", "ref", "raw"))
        ),
    }
    for name, value in ours.items():
        assert_close(value, oracle[f"rpmnet_{name}"].double(), rtol=1e-5, atol=0)


def test_a_known_turn_has_its_angle_also_when_it_is_tiny():
    axis = torch.tensor([0.6, 0.0, 0.8], dtype=torch.float64)
    for angle in (1e-9, 1e-3, 1.0, 3.0, math.pi):
        T_true = se3.random(generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        turn = se3.from_rotation_translation(so3.exp(angle * axis), torch.zeros(3, dtype=torch.float64))
        assert float(metrics.rotation_error(turn @ T_true, T_true)) == pytest.approx(angle, rel=1e-6)


def test_isotropic_errors_do_not_depend_on_the_frames():
    generator = torch.Generator().manual_seed(1)
    T_true, T_estimate, T_world = (se3.random(5, generator=generator, dtype=torch.float64) for _ in range(3))
    before = metrics.isotropic_summary(T_estimate, T_true)
    after = metrics.isotropic_summary(T_world @ T_estimate, T_world @ T_true)
    assert after == pytest.approx(before)


def test_a_perfect_answer_is_perfect_everywhere():
    T = se3.random(4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    points = torch.randn(4, 50, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    summary = metrics.euler_summary(T, T)
    assert (summary["rotation_rmse_deg"], summary["translation_mae"]) == (0.0, 0.0)
    assert (summary["rotation_r2"], summary["translation_r2"]) == (1.0, 1.0)
    assert metrics.recall_summary(T, T, points)["recall"] == 1.0
    assert metrics.modified_chamfer(T, T, points, se3.apply(T, points), se3.apply(T, points)).max() < 1e-20
    fitness, rmse = metrics.overlap(T, points, se3.apply(T, points), 0.1)
    assert (fitness == 1).all()
    assert rmse.max() < 1e-10


def test_r2_is_zero_for_the_mean_motion():
    T_true = se3.random(20, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    T_estimate = T_true.clone()
    T_estimate[:, :3, 3] = T_true[:, :3, 3].mean(0)
    assert metrics.euler_summary(T_estimate, T_true)["translation_r2"] == pytest.approx(0.0, abs=1e-12)


def test_recall_counts_pairs_that_end_near():
    T_true = torch.eye(4, dtype=torch.float64).repeat(4, 1, 1)
    T_estimate = T_true.clone()
    T_estimate[:, 0, 3] = torch.tensor([0.0, 0.19, 0.21, 5.0])
    summary = metrics.recall_summary(T_estimate, T_true, torch.zeros(4, 10, 3, dtype=torch.float64))
    assert summary["recall"] == 0.5
    assert summary["displacement_mean"] == pytest.approx(5.4 / 4)


def test_overlap_counts_the_near_ones_alone():
    source = torch.tensor([[0.0, 0, 0], [1, 0, 0], [2, 0, 0], [9, 0, 0]], dtype=torch.float64)
    target = torch.tensor([[0.0, 0.03, 0], [1, 0.04, 0], [2, 0.5, 0]], dtype=torch.float64)
    fitness, rmse = metrics.overlap(torch.eye(4, dtype=torch.float64), source, target, 0.1)
    assert float(fitness) == 0.5
    assert float(rmse) == pytest.approx(math.sqrt((0.03**2 + 0.04**2) / 2))


def test_overlap_without_any_near_point_is_zero():
    far = torch.full((3, 3), 100.0)
    fitness, rmse = metrics.overlap(torch.eye(4), torch.zeros(3, 3), far, 0.1)
    assert (float(fitness), float(rmse)) == (0.0, 0.0)


def test_bad_input_is_named():
    T = torch.eye(4)
    with pytest.raises(ValueError, match=r"T_estimate must have shape \(\.\.\., 4, 4\), got \(3, 4\)"):
        metrics.rotation_error(T[:3], T)
    with pytest.raises(ValueError, match="T_estimate must have the shape of T_true"):
        metrics.translation_error(T.repeat(2, 1, 1), T)
    with pytest.raises(ValueError, match="max_distance must be positive, got 0"):
        metrics.overlap(T, torch.zeros(1, 3), torch.zeros(1, 3), 0)
