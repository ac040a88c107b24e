"""A round of many poses at once is the step that the layer would take with the same partners."""

from __future__ import annotations

import pytest
import torch

from p2plane import point_to_distribution
from p2plane.classical.field import Field, Surface
from p2plane.geometry import se3, so3

SHARE, REACH = 0.05, 0.3


def surfaces(seed: int = 0, shift: float = 0.0) -> tuple[Surface, Surface]:
    random = torch.Generator().manual_seed(seed)
    points = torch.randn(300, 3, generator=random, dtype=torch.float64)
    points = points / points.norm(dim=-1, keepdim=True) * torch.tensor([1.0, 0.7, 0.4])
    normals = torch.nn.functional.normalize(points / torch.tensor([1.0, 0.7, 0.4]) ** 2, dim=-1)
    return Surface(points[:120] + shift, normals[:120]), Surface(points + shift, normals)


def poses(count: int, amount: float) -> torch.Tensor:
    twists = torch.randn(count, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return se3.exp(amount * twists)


def test_a_step_is_that_of_the_layer():
    source, target = surfaces()
    # Near the truth: the two turn about different points, which differ in the second order.
    field, T = Field(source, target, SHARE), poses(40, 0.003)
    seen = field._partners(field.to_local(T), REACH)
    partners = (se3.apply(field.to_local(T), _local(source, field)) - seen.apart.mT.double()) * field.size
    partners = partners + target.points.mean(0)
    normals = seen.normals.mT.double()
    W = normals[..., :, None] * normals[..., None, :] + SHARE * torch.eye(3, dtype=torch.float64)
    clouds = source.points.expand(40, -1, -1), partners, W, seen.fit.double()
    expected = point_to_distribution(*clouds, initial=T, solver="accumulate", max_iterations=1).T_target_source
    found = field.to_caller(field.step(field.to_local(T), REACH))
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)


def _local(surface: Surface, field: Field) -> torch.Tensor:
    return ((surface.points - surface.points.mean(0)) / field.size).expand(40, -1, -1)


def test_poses_survive_the_way_to_local_units_and_back():
    field, T = Field(*surfaces(shift=100.0), SHARE), poses(5, 1.0)
    torch.testing.assert_close(field.to_caller(field.to_local(T)), T)


def test_rounds_bring_the_source_home():
    field, T = Field(*surfaces(), SHARE), poses(20, 0.05)
    T = field.to_local(T)
    before = field.overlap(T, 0.1)
    for _ in range(20):
        T = field.step(T, 0.1)
    assert (field.overlap(T, 0.1) > before).all()
    # An ellipsoid's symmetries are half turns, far away.
    assert (so3.log(T[:, :3, :3]).norm(dim=-1) < 0.05).all()


@pytest.mark.parametrize("hold", [("tz",), ("rx", "ry"), ("rx", "ry", "tz"), ("tx", "ty", "tz")])
def test_held_directions_keep_their_value_far_from_the_origin_too(hold):
    field = Field(*surfaces(shift=3.0), SHARE, hold)
    T = poses(10, 0.05)
    if "rx" in hold:
        T[:, :3, :3] = torch.eye(3, dtype=torch.float64)
    after = field.to_caller(field.step(field.to_local(T), REACH))
    for axis in range(3):
        if f"t{'xyz'[axis]}" in hold:
            torch.testing.assert_close(after[:, axis, 3], T[:, axis, 3])
    if "rx" in hold:
        turn = so3.log(after[:, :3, :3] @ T[:, :3, :3].mT)
        assert turn[:, :2].abs().max() < 1e-9 < turn[:, 2].abs().max()
    assert not torch.allclose(after, T)


def test_poses_out_of_reach_stay_where_they_are():
    field = Field(*surfaces(), SHARE)
    T = torch.eye(4, dtype=torch.float64).repeat(2, 1, 1)
    T[:, 0, 3] = 1e6
    torch.testing.assert_close(field.step(T, 0.1), T)
    assert (field.overlap(T, 0.1) == 0).all()
