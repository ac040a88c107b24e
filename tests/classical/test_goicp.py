"""Go-ICP finds the best pose from anywhere, its bounds hold, and it says what it has not proven."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation
from torch import Tensor

from p2plane import se3
from p2plane.classical.bounds import DistanceField, TranslationSearch
from p2plane.classical.goicp import GoICP, GoICPConfig
from p2plane.classical.icp import icp
from p2plane.data.synthetic import SyntheticShapes
from p2plane.evaluation.metrics import rotation_error, translation_error

QUICK = GoICPConfig(cells=32, max_points=100)


def shape(name: str = "chair", points: int = 300, number: int = 0) -> Tensor:
    """(N, 3) points of a built-in object that fixes its pose."""
    return SyntheticShapes("test", categories=[name], shapes_per_category=number + 1, points=points)[number].points


def motion(seed: int) -> Tensor:
    return se3.random(generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def align(source: Tensor, target: Tensor, config: GoICPConfig = QUICK, **masks: Any) -> Any:
    return GoICP(config)(source, target, generator=torch.Generator().manual_seed(0), **masks)


@pytest.mark.parametrize("name", ["chair", "airplane", "stairs"])
def test_any_rotation_is_recovered(name: str) -> None:
    source = shape(name).double()
    T_true = se3.exp(torch.tensor([1.1, 2.2, -1.0, 3.0, -2.0, 1.0], dtype=torch.float64))  # 153 degrees
    result = align(source, se3.apply(T_true, source))
    assert result.converged
    assert rotation_error(result.T_target_source, T_true) < math.radians(1)
    assert translation_error(result.T_target_source, T_true) < 0.01
    from_identity = icp(source, se3.apply(T_true, source), distance="point")
    assert rotation_error(from_identity.T_target_source, T_true) > math.radians(10)


def test_other_points_of_the_same_surface_are_enough() -> None:
    points, T_true = shape(points=2000).double(), motion(seed=3)
    result = align(points[:100], se3.apply(T_true, points[100:]))
    assert result.converged
    assert rotation_error(result.T_target_source, T_true) < math.radians(3)


def test_the_clouds_may_have_any_unit_and_place() -> None:
    source, T_true = shape().double(), motion(seed=4)
    far = torch.tensor([4e5, -3e6, 100.0], dtype=torch.float64)
    moved = 1000 * se3.apply(T_true, source) + far
    T = align(1000 * source - far, moved).T_target_source
    assert rotation_error(T, T_true) < math.radians(1)
    torch.testing.assert_close(se3.apply(T, 1000 * source - far), moved, atol=1.0, rtol=0)


def test_padding_of_a_batch_is_not_seen() -> None:
    first, second, T_true = shape("chair").double(), shape("lamp", points=200).double(), motion(seed=5)
    source = torch.full((2, 300, 3), torch.nan, dtype=torch.float64)
    source[0], source[1, :200] = first, second
    mask = source.isfinite().all(-1)
    target = se3.apply(T_true, source)
    result = align(source, target, source_mask=mask, target_mask=mask)
    assert result.T_target_source.shape == (2, 4, 4)
    assert (rotation_error(result.T_target_source, T_true.expand(2, 4, 4)) < math.radians(1)).all()
    assert result.residuals[~mask].abs().max() == 0


def test_trimming_ignores_what_has_no_partner() -> None:
    points, T_true = shape().double(), motion(seed=6)
    clutter = 0.3 * torch.rand(60, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.6
    source = torch.cat([points, clutter])
    trimmed = align(source, se3.apply(T_true, points), GoICPConfig(cells=32, max_points=120, trim=0.2))
    assert rotation_error(trimmed.T_target_source, T_true) < math.radians(1)
    assert trimmed.energy < 1e-6 * len(source)  # of the points that are kept


def test_the_answer_is_that_of_the_seed() -> None:
    source, T_true = shape(points=400), motion(seed=7).float()
    first, second = (align(source, se3.apply(T_true, source)).T_target_source for _ in range(2))
    assert torch.equal(first, second)
    assert first.dtype == torch.float32


def test_an_unfinished_search_says_so() -> None:
    source, T_true = shape().double(), motion(seed=2)
    result = align(source, se3.apply(T_true, source), GoICPConfig(cells=16, time_limit=1e-9))
    assert not result.converged
    R = result.R
    torch.testing.assert_close(R @ R.mT, torch.eye(3, dtype=R.dtype))


@pytest.mark.parametrize(("trim", "limit"), [(0.0, 1e-3), (0.0, 1e-2), (0.3, 1e-3)])
def test_no_pose_of_a_cube_beats_its_lower_bound(trim: float, limit: float) -> None:
    random = np.random.default_rng(0)
    data, model = (shape(number=number, points=60).numpy().astype(np.float64) for number in (0, 1))
    field = DistanceField(model, reach=1.6, cell=1 / 32)
    kept = math.floor(60 * (1 - trim))
    search = TranslationSearch(field, half_side=0.5, kept=kept)
    vector, half_side = np.array([0.4, -1.1, 0.3]), 0.05
    rotated = data @ Rotation.from_rotvec(vector).as_matrix().T
    slack = 2 * math.sin(math.sqrt(3) * half_side / 2) * np.linalg.norm(data, axis=1)
    bounds = search(rotated[None], slack[None], limit=limit * kept)
    # The grid rounds: that much, and no more, a distance may be too long.
    rounding = math.sqrt(3) / 32
    errors = []
    for _ in range(500):
        turned = data @ Rotation.from_rotvec(vector + random.uniform(-half_side, half_side, 3)).as_matrix().T
        distances = cKDTree(model).query(turned + random.uniform(-0.5, 0.5, 3))[0]
        errors.append(np.square(np.sort(distances)[:kept] + rounding).sum())
    assert 0 < bounds.lower[0] <= min(errors)
    at = np.sort(cKDTree(model).query(rotated + bounds.translation[0])[0])[:kept]
    assert bounds.lower[0] <= bounds.error[0] <= np.square(at + rounding).sum()


def test_a_look_up_is_wrong_by_half_a_diagonal_at_most() -> None:
    random = np.random.default_rng(1)
    model, places = random.uniform(-1, 1, (200, 3)), random.uniform(-1.5, 1.5, (1000, 3))
    field = DistanceField(model, reach=1.5, cell=0.05)
    exact = cKDTree(model).query(places)[0]
    assert np.abs(field(places) - exact).max() < math.sqrt(3) / 2 * 0.05 * 1.2
    shift = 0.05 * np.array([3, -2, 1])
    assert np.array_equal(field.rows(places[:50] / 2) + field.steps(shift), field.rows(places[:50] / 2 + shift))


@pytest.mark.parametrize(
    "points",
    [
        torch.zeros(1, 3),
        torch.ones(5, 3),
        torch.linspace(0, 1, 9)[:, None] * torch.ones(3),
        torch.rand(30, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 1.0, 0.0]),
        torch.zeros(0, 3),
    ],
    ids=["one point", "one place", "line", "plane", "nothing"],
)
def test_degenerate_clouds_give_finite_poses(points: Tensor) -> None:
    T_true = motion(seed=1).float()
    result = align(points, se3.apply(T_true, points), GoICPConfig(cells=16, time_limit=2))
    assert result.T_target_source.isfinite().all()
    if len(points):
        assert result.residuals.max() < 0.2
    else:
        assert not result.converged


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mse_threshold": 0.0}, "mse_threshold must be positive"),
        ({"trim": 1.0}, r"trim must be in \[0, 1\)"),
        ({"max_points": 0}, "max_points must be a positive integer"),
        ({"time_limit": -1}, "time_limit must be positive"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GoICPConfig(**settings)


def test_clouds_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="source must be floating point of shape"):
        align(torch.zeros(5, 2), torch.zeros(5, 3))
    with pytest.raises(ValueError, match="target must be finite"):
        align(torch.zeros(5, 3), torch.full((5, 3), torch.nan))
