"""The partners of a moving cloud are always the nearest points, however few of them are looked for again."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from p2plane import se3
from p2plane.classical.pairing import Pairing, Target, along_a_grid


def channels(points: Tensor) -> np.ndarray:
    return np.ascontiguousarray(points.numpy().T)


def cloud(points: int, seed: int) -> Tensor:
    return torch.rand(points, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("max_distance", [math.inf, 0.5, 0.06, 1e-3])
@pytest.mark.parametrize("points", [700, 40, 2, 1])
def test_partners_are_the_nearest_at_every_pose(points: int, max_distance: float) -> None:
    source, target = cloud(500, 0), cloud(points, 1)
    pairing = Pairing(Target(channels(target)), max_distance)
    generator = torch.Generator().manual_seed(2)
    moved = source
    for size in [0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 1e-3, 1e-4, 0.0, 0.2, 1e-3]:
        moved = se3.apply(se3.exp(size * torch.randn(6, generator=generator, dtype=torch.float64)), moved)
        pairing.follow(channels(moved))
        partners, distances = torch.from_numpy(pairing.partners), torch.from_numpy(pairing.distances)
        assert_close(
            torch.from_numpy(pairing.points).mT[distances <= max_distance], target[partners][distances <= max_distance]
        )
        expected, nearest = torch.cdist(moved, target).min(-1)
        within = expected <= max_distance
        assert_close(partners[within], nearest[within])
        assert_close(distances[within], expected[within])
        assert (distances[~within] > max_distance).all()


def test_a_cloud_that_hardly_moves_asks_for_little(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    search = Target.nearest_two

    def counted(self: Target, queries: np.ndarray, reach: float) -> tuple[np.ndarray, np.ndarray]:
        asked.append(queries.shape[1])
        return search(self, queries, reach)

    monkeypatch.setattr(Target, "nearest_two", counted)
    source, pairing = channels(cloud(1000, 0)), Pairing(Target(channels(cloud(1000, 1))))
    for shift in (0.0, 1e-4, 2e-4):
        pairing.follow(source + shift)
    assert asked[0] == 1000
    assert sum(asked[1:]) < 50


@pytest.mark.parametrize("points", [cloud(5000, 3), torch.zeros(7, 3).double(), 1e9 * cloud(100, 4)])
def test_the_order_along_a_grid_holds_every_point_once(points: Tensor) -> None:
    order = along_a_grid(channels(points))
    assert sorted(order.tolist()) == list(range(len(points)))
    jumps = points[torch.from_numpy(order)].diff(dim=0).norm(dim=-1).mean()
    assert jumps <= points.diff(dim=0).norm(dim=-1).mean() / 2 or jumps == 0 or len(points) < 1000
