"""The gradient of ICP at the pairs on which it came to rest."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from p2plane import Tukey, se3
from p2plane.classical.icp import icp
from p2plane.classical.problems import DISTANCES
from p2plane.classical.scales import Scale
from tests.classical.test_icp import scene

T_SMALL = se3.exp(torch.tensor([0.03, -0.02, 0.04, 0.02, -0.01, 0.02], dtype=torch.float64))
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "kernel": {"robust": Tukey(0.3)},
    "trimmed": {"trim": 0.8},
    "held": {"hold": ("rx", "ry")},
    "thinned": {"scales": [Scale(0.2)]},
}


def noisy_scene() -> list[Tensor]:
    clouds = list(scene(150, T_SMALL))
    clouds[0] = clouds[0] + 0.01 * torch.randn(clouds[0].shape, generator=torch.Generator().manual_seed(1)).double()
    return clouds


def loss_of(clouds: list[Tensor], direction: Tensor, **options: Any) -> Tensor:
    alignment = icp(*clouds, tolerance=1e-12, max_iterations=100, **options)
    assert alignment.converged
    return (alignment.T_target_source * direction).sum()


def check(clouds: list[Tensor], moved: tuple[int, ...], **options: Any) -> None:
    """Compare with central differences along random directions; a step so small that no point changes its partner."""
    generator = torch.Generator().manual_seed(2)
    direction = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    leaves = [cloud.clone().requires_grad_(i in moved) for i, cloud in enumerate(clouds)]
    loss_of(leaves, direction, differentiable=True, **options).backward()
    for i in moved:
        way = torch.randn(clouds[i].shape, generator=generator, dtype=torch.float64)
        step = 1e-7
        ends = [
            loss_of(
                [cloud + sign * step * way if j == i else cloud for j, cloud in enumerate(clouds)], direction, **options
            )
            for sign in (1, -1)
        ]
        expected = (ends[0] - ends[1]) / (2 * step)
        gradient = leaves[i].grad
        assert gradient is not None
        assert_close((gradient * way).sum(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("distance", DISTANCES)
def test_gradient_of_every_distance(distance: str) -> None:
    moved = {"point": (0, 1), "plane": (0, 1, 3)}.get(distance, (0, 1, 2, 3))
    check(noisy_scene(), moved, distance=distance)


@pytest.mark.parametrize("name", OPTIONS)
def test_gradient_with_every_option(name: str) -> None:
    check(noisy_scene(), (0, 1), **OPTIONS[name])


def test_without_asking_there_is_no_gradient_and_the_same_pose() -> None:
    clouds = noisy_scene()
    source = clouds[0].clone().requires_grad_()
    plain, with_gradient = icp(source, *clouds[1:]), icp(source, *clouds[1:], differentiable=True)
    assert not plain.T_target_source.requires_grad
    assert with_gradient.T_target_source.requires_grad
    assert_close(plain.T_target_source, with_gradient.T_target_source.detach(), rtol=0, atol=0)
    assert with_gradient.converged


def test_a_batch_with_a_hopeless_pair_keeps_finite_gradients() -> None:
    clouds = [torch.stack([each, each]) for each in noisy_scene()]
    clouds[0][1] += 100
    source = clouds[0].requires_grad_()
    alignment = icp(source, *clouds[1:], max_distance=0.5, differentiable=True)
    assert alignment.converged.tolist() == [True, False]
    alignment.T_target_source.sum().backward()
    assert source.grad is not None
    assert source.grad.isfinite().all()
    assert (source.grad[1] == 0).all()
    assert (source.grad[0] != 0).any()
