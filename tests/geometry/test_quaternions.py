"""Quaternions and rotations, there and back."""

from __future__ import annotations

import roma
import torch
from torch.testing import assert_close

from p2plane.geometry.quaternions import quaternion_of, rotation_of


def quaternions() -> torch.Tensor:
    """Random ones, and turns by nothing and by half about each axis and between them."""
    random = torch.randn(100, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    special = torch.tensor([[1, 1, 0, 0], [0, 1, -1, 0], [1, 1, 1, 1], [1, 1, 1, -1]], dtype=torch.float64)
    every = torch.cat([random, torch.eye(4, dtype=torch.float64), special])
    return every / every.norm(dim=-1, keepdim=True)


def test_a_rotation_agrees_with_roma() -> None:
    assert_close(rotation_of(quaternions()), roma.unitquat_to_rotmat(quaternions()), rtol=0, atol=1e-14)


def test_a_quaternion_and_its_negative_are_one_rotation() -> None:
    assert_close(rotation_of(quaternions()), rotation_of(-quaternions()), rtol=0, atol=0)


def test_the_quaternion_of_a_rotation_is_the_one_that_it_came_from_up_to_sign() -> None:
    found = quaternion_of(rotation_of(quaternions()))
    assert (found[:, 3] >= 0).all()
    assert_close((found * quaternions()).sum(-1).abs(), torch.ones(len(found), dtype=torch.float64))
    assert_close(rotation_of(found), rotation_of(quaternions()), rtol=0, atol=1e-14)


def test_gradients_match_finite_differences() -> None:
    some = quaternions()[:5].requires_grad_()
    assert torch.autograd.gradcheck(rotation_of, some)
    R = rotation_of(some.detach()).requires_grad_()
    assert torch.autograd.gradcheck(quaternion_of, R)


def test_the_batch_shape_is_kept() -> None:
    for shape in [(), (0,), (2, 3)]:
        R = torch.eye(3).expand(*shape, 3, 3)
        assert quaternion_of(R).shape == (*shape, 4)
        assert rotation_of(quaternion_of(R)).shape == (*shape, 3, 3)
