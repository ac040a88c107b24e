"""Refinement stays at the true pose where much of each scan has no counterpart in the other."""

from __future__ import annotations

import math

import pytest

from p2plane.data.cloud import Cloud
from p2plane.data.pairs import PairDataset, PairSettings
from p2plane.data.synthetic import SyntheticShapes
from p2plane.geometry import se3, so3
from p2plane.registration.answer import ROUGH_REACHES
from p2plane.registration.check import Overlap
from p2plane.registration.pipeline import register
from p2plane.registration.refine import refine


@pytest.mark.parametrize("index", [5, 16])
def test_what_has_no_counterpart_does_not_turn_the_pose(index: int) -> None:
    pair = PairDataset(SyntheticShapes("test", shapes_per_category=1), "cpu-noisy-so3", seed=1)[index]
    source = Cloud(pair.source.double(), pair.source_normals.double())
    target = Cloud(pair.target.double(), pair.target_normals.double())
    T_true = pair.T_target_source.double()
    reaches = [reach * Overlap(source, target).spacing for reach in ROUGH_REACHES]
    T = refine(source, target, T_true, reaches)
    assert math.degrees(se3.log(T @ se3.inverse(T_true))[:3].norm()) < 4  # by nearest points alone: 10 and 7 degrees


def test_an_initial_pose_may_be_farther_off_than_normals_agree() -> None:
    settings = PairSettings(shapes=3, points=512, keep=400, max_angle_deg=15)
    pair = PairDataset(SyntheticShapes("test"), settings)[80]
    clouds = Cloud(pair.source, pair.source_normals), Cloud(pair.target, pair.target_normals)
    result = register(*clouds, method="initial")
    left = result.T_target_source @ se3.inverse(pair.T_target_source.double())
    assert math.degrees(se3.log(left)[:3].norm()) < 1  # by `refine` alone: 36 degrees


def test_points_without_normals_are_passed_over() -> None:
    pair = PairDataset(SyntheticShapes("test", shapes_per_category=1), "cpu", seed=1)[0]
    T_true = pair.T_target_source.double()
    normals = pair.source_normals.double().clone()
    normals[::3] = 0
    source, target = Cloud(pair.source.double(), normals), Cloud(pair.target.double(), pair.target_normals.double())
    T = refine(source, target, T_true, [0.1])
    assert math.degrees(so3.log(T[:3, :3] @ T_true[:3, :3].mT).norm()) < 1
