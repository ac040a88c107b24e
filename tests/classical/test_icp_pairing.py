"""The partners of a moving cloud are always the nearest points, however few of them are looked for again."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from p2plane import Tukey, se3
from p2plane.classical.icp import icp
from p2plane.classical.pairing import REACH, Pairing, Target, along_a_grid, lengths
from p2plane.classical.problems import DISTANCES


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


def test_points_that_come_as_near_to_another_are_looked_for_again() -> None:
    generator = np.random.default_rng(0)
    near, rows, steps = generator.uniform(0.1, 1, 500), 10.0 * np.arange(500), np.linspace(0, 0.05, 24)
    behind, ahead = ([sign * x for x in each] for sign, each in ((-1, near), (1, near + 2 * steps[-1])))
    target = Target(np.stack([np.append(behind, ahead), np.append(rows, rows), np.zeros(1000)]))
    pairing = Pairing(target)
    for x in steps:  # half way between the two at the end, but for the last digit
        moved = np.stack([np.full(500, x), rows, np.zeros(500)])
        pairing.follow(moved)
    assert (pairing.partners == target.nearest_two(moved, math.inf)[1][:, 0]).all()


def look_everywhere(self: Pairing, moved: np.ndarray) -> None:
    """`Pairing.follow` by a search for every point in every round."""
    distances, rows = self._target.nearest_two(moved, REACH * self._max_distance)
    self.partners, self.points = rows[:, 0].copy(), self._target.points[:, rows[:, 0]]
    self.distances = np.where(np.isfinite(distances[:, 0]), lengths(moved - self.points), math.inf)


def clouds(name: str) -> tuple[Tensor, ...]:
    """Source and target, and random normals of both."""
    one, other, *directions = (cloud(600, seed) for seed in range(4))
    source, target = {
        "random": (one, other),
        "copy": (one, one),
        "twice": (one, torch.cat([other[:300], other[:300]])),
        "lattice": ((8 * one).round() / 8, (8 * other).round() / 8),
        "plane": (one * torch.tensor([1, 1, 0]), other * torch.tensor([1, 1, 0])),
        "one point": (one, other[:1].expand(600, 3)),
        "far away": (one + 1e6, other + 1e6),
        "huge": (1e70 * one, 1e70 * other),
        "tiny": (1e-150 * one, 1e-150 * other),
        "denormal": (1e-310 * one, 1e-310 * other),
    }[name]
    normals = (torch.nn.functional.normalize(each - 0.5, dim=-1) for each in directions)
    return source, target.contiguous(), *normals


RULES: list[dict[str, Any]] = [
    {"max_distance": 0.1},
    {"trim": 0.7},
    {"max_normal_angle": 0.8},
    {"robust": Tukey(0.2)},
    {"max_distance": 0.2, "trim": 0.9, "max_normal_angle": 1.0, "rmse_tolerance": 1e-6},
    *({"distance": distance} for distance in DISTANCES),
]
IN_SINGLE = ["random", "copy", "twice", "lattice", "plane", "one point", "far away"]
CASES = [
    *((name, torch.float64) for name in (*IN_SINGLE, "huge", "tiny", "denormal")),
    *((name, torch.float32) for name in IN_SINGLE),
]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize(("name", "dtype"), CASES, ids=str)
def test_icp_is_what_it_is_with_a_search_for_every_point_in_every_round(
    name: str, rule: dict[str, Any], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [each.to(dtype) for each in clouds(name)]
    found = icp(*given, max_iterations=15, **rule)
    monkeypatch.setattr(Pairing, "follow", look_everywhere)
    expected = icp(*given, max_iterations=15, **rule)
    assert found.iterations == expected.iterations
    assert found.converged == expected.converged
    for side in ("source_rows", "target_rows"):
        assert (found.rounds[0].extras[side] == expected.rounds[0].extras[side]).all()
    assert_close(found.T_target_source, expected.T_target_source, rtol=1e-9, atol=0)


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
