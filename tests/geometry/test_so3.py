"""Rotations: the exponential and its inverse, and the nearest rotation."""

from __future__ import annotations

import math

import pytest
import roma
import torch
from torch.testing import assert_close

from p2plane import so3

AXIS = torch.tensor([0.6, -0.64, 0.48], dtype=torch.float64)
ANGLES = [0.0, 1e-12, 1e-6, 0.99e-4, 1.01e-4, 1e-3, 0.1, 1.0, 3.0]  # 1e-4 is where the series takes over


def vectors(*batch: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*batch, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_rotations(R: torch.Tensor) -> None:
    assert_close(R @ R.mT, torch.eye(3, dtype=R.dtype).expand_as(R))
    assert_close(torch.linalg.det(R), torch.ones(R.shape[:-2], dtype=R.dtype))


def test_hat_is_the_cross_product():
    omega, points = vectors(5, seed=0), vectors(5, seed=1)
    assert_close((so3.hat(omega) @ points[..., None]).squeeze(-1), torch.linalg.cross(omega, points))


@pytest.mark.parametrize("angle", [*ANGLES, math.pi, 6.0, 30.0])
def test_exp_is_the_matrix_exponential_and_agrees_with_roma(angle):
    omega = angle * AXIS
    assert_close(so3.exp(omega), torch.linalg.matrix_exp(so3.hat(omega)), rtol=0, atol=2e-14)
    assert_close(so3.exp(omega), roma.rotvec_to_rotmat(omega), rtol=0, atol=1e-12)


@pytest.mark.parametrize("angle", [*ANGLES, 3.14159])
def test_log_undoes_exp(angle):
    omega = angle * AXIS
    assert_close(so3.log(so3.exp(omega)), omega, rtol=0, atol=1e-12)


@pytest.mark.parametrize("angle", [*ANGLES, 0.0199, 0.0201, 3.14])
def test_log_has_derivatives_at_zero_and_elsewhere(angle):
    omega = (angle * AXIS).requires_grad_()
    assert torch.autograd.gradcheck(lambda omega: so3.log(so3.exp(omega)), omega)
    assert torch.autograd.gradgradcheck(lambda omega: so3.log(so3.exp(omega)), omega)


def test_log_agrees_with_roma():
    R = so3.random(200, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert_close(so3.log(R), roma.rotmat_to_rotvec(R), rtol=0, atol=1e-12)


def test_exp_undoes_log_at_every_angle_and_the_vector_is_at_most_pi_long():
    R = torch.cat([so3.random(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64), half_turns()])
    omega = so3.log(R)
    assert_close(so3.exp(omega), R, rtol=0, atol=1e-12)
    assert omega.norm(dim=-1).max() <= math.pi + 1e-12


def half_turns() -> torch.Tensor:
    """Turns by pi, whose rotation vectors have two signs: about each axis, and about others."""
    axes = torch.cat([torch.eye(3, dtype=torch.float64), vectors(5)])
    axes = axes / axes.norm(dim=-1, keepdim=True)
    return 2 * axes[:, :, None] * axes[:, None] - torch.eye(3, dtype=torch.float64)


@pytest.mark.parametrize("angle", ANGLES)
def test_exp_has_first_and_second_derivatives_at_zero_and_elsewhere(angle):
    omega = (angle * AXIS).requires_grad_()
    assert torch.autograd.gradcheck(so3.exp, omega)
    assert torch.autograd.gradgradcheck(so3.exp, omega)


def test_second_derivatives_of_exp_at_zero_are_products_of_generators():
    K = so3.hat(torch.eye(3, dtype=torch.float64))
    first = torch.func.jacrev(so3.exp)(torch.zeros(3, dtype=torch.float64))  # (3, 3, 3), the last by omega
    second = torch.func.jacrev(torch.func.jacrev(so3.exp))(torch.zeros(3, dtype=torch.float64))
    products = K[:, None] @ K[None]
    assert_close(first.movedim(-1, 0), K)
    assert_close(second.permute(2, 3, 0, 1), (products + products.transpose(0, 1)) / 2)


@pytest.mark.parametrize("angle", [1e-5, 1.1e-4, 3e-4, 1e-3, 1e-2, 1.0])
def test_derivatives_of_exp_are_as_good_as_float32_allows(angle):
    jacobian = torch.func.jacrev(so3.exp)
    exact = jacobian(angle * AXIS)
    assert_close(jacobian((angle * AXIS).float()), exact.float(), rtol=0, atol=2e-6)


def test_project_gives_the_nearest_rotation_for_reflections_too():
    matrix = vectors(100, 3)
    assert (torch.linalg.det(matrix) < 0).any()
    R = so3.project(matrix)
    assert_rotations(R)
    assert_close(R, roma.special_procrustes(matrix))
    others = so3.random(1000, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert ((R - matrix).norm(dim=(-1, -2)) <= (others - matrix).norm(dim=(-1, -2))).all()


@pytest.mark.parametrize(
    "matrix",
    [
        torch.zeros(3, 3),
        -torch.eye(3),
        torch.diag(torch.tensor([1.0, 1.0, -1.0])),
        torch.ones(3, 3),
        1e-30 * torch.eye(3),
    ],
    ids=["zero", "point mirror", "mirror", "rank one", "tiny"],
)
def test_project_gives_one_of_the_nearest_rotations_where_there_are_several(matrix):
    matrix = matrix.double()
    R = so3.project(matrix)
    assert_rotations(R)
    assert_close((R * matrix).sum(), (roma.special_procrustes(matrix) * matrix).sum())


def test_project_leaves_rotations_alone():
    R = so3.random(20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert_close(so3.project(R), R)


def test_random_rotations_are_uniform():
    R = so3.random(20_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert_rotations(R)
    # Uniform rotations take e_z anywhere on the sphere, and their angles have the density (1 - cos) / pi.
    assert_close(R.mean(0), torch.zeros(3, 3, dtype=torch.float64), rtol=0, atol=0.02)
    assert_close(R.square().mean(0), torch.full((3, 3), 1 / 3, dtype=torch.float64), rtol=0, atol=0.02)
    assert so3.log(R).norm(dim=-1).mean().item() == pytest.approx(math.pi / 2 + 2 / math.pi, abs=0.02)


def test_the_generator_decides_the_random_rotations():
    draws = [so3.random(2, generator=torch.Generator().manual_seed(seed)) for seed in (3, 3, 4)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


@pytest.mark.parametrize("batch", [(), (0,), (2,), (2, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_functions_keep_batch_shape_and_dtype(batch, dtype):
    omega = vectors(*batch).to(dtype)
    R = so3.exp(omega)
    results = {
        "exp": R,
        "hat": so3.hat(omega),
        "project": so3.project(R),
        "random": so3.random(*batch, generator=torch.Generator().manual_seed(0), dtype=dtype),
    }
    assert {name: (result.shape, result.dtype) for name, result in results.items()} == dict.fromkeys(
        results, ((*batch, 3, 3), dtype)
    )
    assert so3.log(R).shape == (*batch, 3)
    assert so3.log(R).dtype == dtype
