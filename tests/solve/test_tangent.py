"""Steps of a search stay rigid, and turn as the exponential does to the second order."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from p2plane import se3
from p2plane.solve.tangent import Chart

T = se3.random(1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)[:, :3]
STEP = torch.tensor([[0.6, -0.64, 0.48, 0.3, -0.2, 0.1]], dtype=torch.float64)


@pytest.mark.parametrize("length", [1e-9, 1e-3, 1.0, 1e3, 1e9])
def test_a_step_of_any_length_gives_a_rotation(length):
    R = Chart().retract(T, length * STEP)[:, :, :3]
    assert_close(R @ R.mT, torch.eye(3, dtype=torch.float64)[None])
    assert_close(torch.linalg.det(R), torch.ones(1, dtype=torch.float64))


def test_a_step_differs_from_the_exponential_in_the_third_order():
    def difference(length: float) -> float:
        R = (se3.exp(length * STEP) @ se3.homogeneous(T))[:, :3, :3]
        return (Chart().retract(T, length * STEP)[:, :, :3] - R).norm().item()

    assert 0 < difference(0.04) < 0.04**3
    assert difference(0.04) / difference(0.02) == pytest.approx(8, rel=0.01)
    assert difference(0.02) / difference(0.01) == pytest.approx(8, rel=0.01)


def test_held_directions_do_not_step():
    chart = Chart(source_pivot=torch.zeros(1, 3, 1, dtype=torch.float64), free=(2, 3, 4))
    moved = chart.retract(T, torch.tensor([[0.5, 0.2, 0.1]], dtype=torch.float64))
    assert_close(moved[:, 2], T[:, 2])  # about z, and along x and y
    assert (moved[:, :2] - T[:, :2]).abs().min() > 1e-3
