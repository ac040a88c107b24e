"""Rigid motions: the conventions of the library, each as a test."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from p2plane import se3, so3


def transforms(*batch: int, seed: int = 0) -> torch.Tensor:
    return se3.random(*batch, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_apply_is_the_matrix_acting_on_homogeneous_columns():
    T, points = transforms(4), normal(4, 7, 3)
    columns = torch.cat([points, torch.ones(4, 7, 1, dtype=torch.float64)], dim=-1).mT
    assert_close(se3.apply(T, points), (T @ columns).mT[..., :3])


def test_rotate_turns_differences_of_points():
    T, a, b = transforms(4), normal(4, 7, 3, seed=1), normal(4, 7, 3, seed=2)
    assert_close(se3.rotate(T, a - b), se3.apply(T, a) - se3.apply(T, b))


def test_transforms_compose_where_inner_names_meet():
    T_a_b, T_b_c, points_c = transforms(4, seed=1), transforms(4, seed=2), normal(4, 7, 3)
    assert_close(se3.apply(T_a_b @ T_b_c, points_c), se3.apply(T_a_b, se3.apply(T_b_c, points_c)))


def test_inverse_is_the_inverse_matrix():
    T = transforms(4)
    assert_close(se3.inverse(T), torch.linalg.inv(T))


def test_from_rotation_translation_takes_p_to_R_p_plus_t():
    R, t, p = transforms(4)[:, :3, :3], normal(4, 3, seed=1), normal(4, 3, seed=2)
    moved = se3.apply(se3.from_rotation_translation(R, t), p[:, None]).squeeze(1)
    assert_close(moved, (R @ p[..., None]).squeeze(-1) + t)


def test_a_tangent_vector_acts_from_the_left_rotation_first():
    T, twist = transforms(4), normal(4, 6)
    R, t = T[:, :3, :3], T[:, :3, 3:]
    turn = so3.exp(twist[:, :3])
    step = se3.homogeneous(torch.cat([turn @ R, turn @ t + twist[:, 3:, None]], dim=-1))
    assert_close(se3.exp(twist) @ T, step)


def test_exp_and_log_undo_each_other():
    twist, T = 0.5 * normal(50, 6), transforms(50, seed=1)
    assert 1 < twist[:, :3].norm(dim=-1).max() < torch.pi
    assert_close(se3.log(se3.exp(twist)), twist)
    assert_close(se3.exp(se3.log(T)), T)


@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0])
def test_exp_has_first_and_second_derivatives(size):
    twist = (size * normal(2, 6)).requires_grad_()
    assert torch.autograd.gradcheck(se3.exp, twist)
    assert torch.autograd.gradgradcheck(se3.exp, twist)


def test_apply_inverse_and_log_have_gradients():
    twist, points = normal(2, 6).requires_grad_(), normal(2, 3, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda twist, points: se3.apply(se3.exp(twist), points), (twist, points))
    assert torch.autograd.gradcheck(lambda twist: se3.inverse(se3.exp(twist)), twist)
    assert torch.autograd.gradcheck(lambda twist: se3.log(se3.exp(twist)), twist)


def test_random_transforms_have_proper_rotations_and_standard_normal_translations():
    T = transforms(5_000)
    assert_close(T[:, :3, :3] @ T[:, :3, :3].mT, torch.eye(3, dtype=torch.float64).expand(5_000, 3, 3))
    assert_close(torch.linalg.det(T), torch.ones(5_000, dtype=torch.float64))
    assert_close(T[:, 3], torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64).expand(5_000, 4))
    assert_close(T[:, :3].mean(0), torch.zeros(3, 4, dtype=torch.float64), rtol=0, atol=0.06)
    assert_close(T[:, :3, 3].std(0), torch.ones(3, dtype=torch.float64), rtol=0, atol=0.05)


@pytest.mark.parametrize("batch", [(), (0,), (2,), (2, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_functions_keep_batch_shape_and_dtype(batch, dtype):
    T = se3.random(*batch, generator=torch.Generator().manual_seed(0), dtype=dtype)
    points = normal(*batch, 7, 3).to(dtype)
    expected = {
        "random": (T, (*batch, 4, 4)),
        "apply": (se3.apply(T, points), (*batch, 7, 3)),
        "rotate": (se3.rotate(T, points), (*batch, 7, 3)),
        "inverse": (se3.inverse(T), (*batch, 4, 4)),
        "log": (se3.log(T), (*batch, 6)),
        "exp": (se3.exp(se3.log(T)), (*batch, 4, 4)),
        "homogeneous": (se3.homogeneous(T[..., :3, :]), (*batch, 4, 4)),
    }
    for name, (result, shape) in expected.items():
        assert result.shape == shape, name
        assert result.dtype == dtype, name


def test_one_transform_moves_a_batch_of_clouds():
    T, points = transforms(), normal(5, 7, 3)
    assert_close(se3.apply(T, points), se3.apply(T.expand(5, 4, 4), points))
