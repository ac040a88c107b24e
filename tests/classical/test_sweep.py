"""The sweep finds the overlap of two clouds from any rotation, without a start."""

from __future__ import annotations

import math

import pytest
import torch

from p2plane.classical.field import Surface
from p2plane.classical.grids import NearestGrid, best_translations, extent_box
from p2plane.classical.sweep import SweepSettings, distinct, sweep
from p2plane.data.pairs import PairDataset
from p2plane.data.synthetic import SyntheticShapes
from p2plane.geometry import se3, so3


def degrees(T: torch.Tensor, T_true: torch.Tensor) -> float:
    return math.degrees(float(so3.log(T[:3, :3] @ T_true[:3, :3].mT).norm()))


@pytest.mark.parametrize("index", [0, 7, 21])
def test_noisy_partial_pairs_are_found_from_any_rotation(index):
    pair = PairDataset(SyntheticShapes("test", shapes_per_category=1), "cpu-noisy")[index]
    T_turned = se3.from_rotation_translation(so3.random(generator=torch.Generator().manual_seed(index)), torch.ones(3))
    T_turned = T_turned.double()
    source = Surface(se3.apply(T_turned, pair.source.double()), se3.rotate(T_turned, pair.source_normals.double()))
    found = sweep(source, Surface(pair.target.double(), pair.target_normals.double()))
    T_true = pair.T_target_source.double() @ se3.inverse(T_turned)
    assert degrees(found.T_target_source[0], T_true) < 8
    assert (found.overlaps[:-1] >= found.overlaps[1:]).all()


def test_the_grid_of_rotations_leaves_no_gap():
    rotations = so3.spread(300)
    torch.testing.assert_close(rotations @ rotations.mT, torch.eye(3, dtype=torch.float64).expand(300, 3, 3))
    asked = so3.random(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    cosines = (torch.einsum("aij,bij->ab", asked, rotations) - 1) / 2
    assert math.degrees(float(cosines.amax(1).clamp(max=1).acos().max())) < 35


def test_the_best_shift_is_that_of_the_overlap():
    random = torch.Generator().manual_seed(0)
    target = torch.rand(2000, 3, generator=random, dtype=torch.float64) * torch.tensor([3.0, 2.0, 1.0])
    source = target[target[:, 0] < 1.5] - torch.tensor([5.0, -7.0, 9.0])
    shift = best_translations(source, target, torch.eye(3, dtype=torch.float64)[None], 24)[0]
    torch.testing.assert_close(shift, torch.tensor([5.0, -7.0, 9.0], dtype=torch.float64), atol=0.3, rtol=0)


def test_a_look_up_finds_the_nearest_point_up_to_a_cell():
    random = torch.Generator().manual_seed(1)
    points = torch.rand(500, 3, generator=random, dtype=torch.float64)
    query = 1.4 * torch.rand(3, 200, 3, generator=random, dtype=torch.float64) - 0.2
    grid = NearestGrid(points, cells=64)
    distances = (query - points[grid(query.mT)]).norm(dim=-1)
    exact = torch.cdist(query.flatten(0, 1), points).amin(1).view(3, 200)
    assert (distances - exact).max() < 2 * 3**0.5 * 1.5 / 64


def test_a_few_outlying_points_do_not_make_a_cloud_large():
    points = torch.rand(1000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    points[:5] = 1e6
    low, high = extent_box(points)
    assert (high - low).max() < 1.1


def test_proposals_are_distinct():
    T = torch.eye(4, dtype=torch.float64).repeat(4, 1, 1)
    T[1, :3, :3] = so3.exp(torch.tensor([0.0, 0.0, 0.05], dtype=torch.float64))
    T[2, :3, :3] = so3.exp(torch.tensor([0.0, 0.0, 0.5], dtype=torch.float64))
    T[3, 0, 3] = 1.0
    assert distinct(T, torch.zeros(3, dtype=torch.float64), 2.0, SweepSettings()) == [0, 2, 3]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_hardly_any_points_do_no_harm(count):
    points = torch.rand(count, 3, dtype=torch.float64)
    found = sweep(Surface(points, torch.zeros_like(points)), Surface(points, torch.zeros_like(points)))
    assert found.T_target_source.isfinite().all()


def test_a_place_that_is_none_has_a_row_all_the_same():
    """Poses of clouds with coordinates of 1e30 may not be numbers."""
    points = torch.rand(20, 3, generator=torch.Generator().manual_seed(0))
    rows = NearestGrid(points)(torch.tensor([[float("nan")], [float("inf")], [0.5]]))
    assert ((rows >= 0) & (rows < 20)).all()
