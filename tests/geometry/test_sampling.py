"""Points that stand for a cloud."""

from __future__ import annotations

import pytest
import torch

from p2plane import se3
from p2plane.geometry import sampling
from p2plane.geometry.sampling import farthest_points


def cloud(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def taken_points(points: torch.Tensor, count: int) -> torch.Tensor:
    return points[0, farthest_points(points, count).indices[0]]


def test_each_is_the_farthest_from_those_before_it():
    points = cloud(1, 50)
    taken = taken_points(points, 12)
    for k in range(1, 12):
        nearest = torch.cdist(points[0], taken[:k]).amin(1)
        assert nearest.max() == pytest.approx(float(torch.cdist(taken[k : k + 1], taken[:k]).min()), abs=1e-6)


def test_neither_order_nor_motion_matters():
    points = cloud(1, 50)
    order, T = torch.randperm(50, generator=torch.Generator().manual_seed(1)), se3.random(1, dtype=torch.float64)
    expected = se3.apply(T, taken_points(points, 12)[None])[0]
    torch.testing.assert_close(taken_points(se3.apply(T, points[:, order]), 12), expected)


def test_large_clouds_are_sampled_alike(monkeypatch):
    points = cloud(2, 50)
    at_once = farthest_points(points, 12).indices
    monkeypatch.setattr(sampling, "_AT_ONCE", 0)
    assert (farthest_points(points, 12).indices == at_once).all()


def test_absent_points_are_not_taken():
    points = cloud(2, 20)
    mask = torch.arange(20) < torch.tensor([[20], [5]])
    points[1, 5:] = 100.0
    sample = farthest_points(points, 8, mask)
    assert sample.mask.tolist() == [[True] * 8, [True] * 5 + [False] * 3]
    assert sorted(sample.indices[1, :5].tolist()) == [0, 1, 2, 3, 4]


def test_a_cloud_has_no_more_points_than_it_has():
    assert sorted(farthest_points(cloud(1, 4), 9).indices[0].tolist()) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        farthest_points(cloud(1, 4), 0)
