"""One point a voxel."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from p2plane.geometry.voxels import voxel_thin


def cloud(points: int = 2000, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.rand(points, 3, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def plain(points: Tensor, size: float) -> dict[tuple[int, ...], list[int]]:
    """The rows of every voxel, one point after the other."""
    members: dict[tuple[int, ...], list[int]] = {}
    for row, place in enumerate(((points - points.amin(0)) / size).floor().long().tolist()):
        members.setdefault(tuple(place), []).append(row)
    return members


@pytest.mark.parametrize("size", [0.07, 0.3, 5.0, 1e-4])
def test_gives_the_mean_and_the_member_nearest_to_it(size: float) -> None:
    points = cloud()
    thin = voxel_thin(points, size)
    members = plain(points, size)
    assert len(thin.points) == len(members)
    for row, (_, rows) in enumerate(sorted(members.items())):
        mean = points[rows].mean(0)
        assert_close(thin.points[row], mean)
        assert thin.indices[row] in rows
        assert_close((points[thin.indices[row]] - mean).norm(), (points[rows] - mean).norm(dim=-1).min())
        assert thin.counts[row] == len(rows)
        assert (thin.voxels[rows] == row).all()


def test_permuting_the_points_changes_nothing_but_their_rows() -> None:
    points, order = cloud(), torch.randperm(2000, generator=torch.Generator().manual_seed(1))
    straight, mixed = voxel_thin(points, 0.1), voxel_thin(points[order], 0.1)
    assert_close(mixed.points, straight.points)
    several = straight.counts != 2  # two points are equally near to their mean
    assert_close(order[mixed.indices][several], straight.indices[several])
    assert_close(mixed.voxels, straight.voxels[order])


def test_moving_the_cloud_moves_the_result() -> None:
    points, shift = cloud(), torch.tensor([1024.0, -2048.0, 512.0], dtype=torch.float64)
    points = (points * 2**20).round() / 2**20  # so that the shift rounds nothing
    assert_close(voxel_thin(points + shift, 0.1).points, voxel_thin(points, 0.1).points + shift)


def test_map_coordinates_in_single_precision_keep_their_digits() -> None:
    points = (cloud() * 1000 + torch.tensor([4.5e6, -5.5e5, 100.0])).float()
    thin = voxel_thin(points, 50.0)
    expected = voxel_thin(points.double(), 50.0)
    assert_close(thin.indices, expected.indices)
    assert (thin.points.double() - expected.points).abs().max() <= 0.25  # half a step of float32 there


@pytest.mark.parametrize("size", [1e-7, 1e-30, 5e-324])
def test_tiny_voxels_hold_a_point_each(size: float) -> None:
    points = torch.cat([cloud(200), cloud(200, seed=1) * 1e9])
    thin = voxel_thin(points, size)
    assert_close(thin.points, points[thin.indices])
    assert_close(thin.indices.sort().values, torch.arange(400))
    repeated = voxel_thin(points.repeat(2, 1), size)
    assert_close(repeated.counts, torch.full((400,), 2))


def test_opposite_normals_do_not_cancel() -> None:
    generator = torch.Generator().manual_seed(2)
    points, normals = cloud(500), torch.randn(500, 3, generator=generator, dtype=torch.float64) * 0.1
    normals[:, 2] += 1
    normals /= normals.norm(dim=-1, keepdim=True)
    signs = torch.where(torch.rand(500, 1, generator=generator) < 0.5, -1.0, 1.0).double()
    straight, flipped = voxel_thin(points, 0.4, normals).normals, voxel_thin(points, 0.4, signs * normals).normals
    assert straight is not None
    assert flipped is not None
    assert_close(straight.norm(dim=-1), torch.ones(len(straight), dtype=torch.float64))
    assert_close(flipped * flipped[:, 2:].sign(), straight)
    assert (straight[:, 2] > 0.9).all()  # normals with an orientation keep it


def test_points_without_a_normal_do_not_count_for_it() -> None:
    points = torch.tensor([[0.0, 0, 0], [0.1, 0, 0], [0.2, 0, 0], [5.0, 0, 0]])
    normals = torch.tensor([[0.0, 0, 0], [0, 1.0, 0], [0, 1.0, 0], [0, 0, 0]])
    thin = voxel_thin(points, 1.0, normals)
    assert_close(thin.normals, torch.tensor([[0.0, 1, 0], [0, 0, 0]]))


def test_gradient_of_the_means() -> None:
    points = cloud(12).requires_grad_()
    assert torch.autograd.gradcheck(lambda each: voxel_thin(each, 0.5).points, (points,))


@pytest.mark.parametrize("points", [torch.zeros(0, 3), torch.zeros(1, 3), torch.ones(5, 3)])
def test_degenerate_clouds(points: Tensor) -> None:
    thin = voxel_thin(points, 0.1, torch.zeros_like(points))
    count = min(1, len(points))
    assert_close(thin.points, points[:count])
    assert_close(thin.indices, torch.arange(count))
    assert_close(thin.counts, torch.full((count,), len(points)))


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"points must have shape \(N, 3\), got \(2, 5, 3\)"):
        voxel_thin(torch.zeros(2, 5, 3), 1.0)
    with pytest.raises(ValueError, match="size must be positive"):
        voxel_thin(torch.zeros(5, 3), 0.0)
    with pytest.raises(ValueError, match="points must be finite"):
        voxel_thin(torch.full((5, 3), torch.nan), 1.0)
    with pytest.raises(ValueError, match="points must be a floating point tensor"):
        voxel_thin(torch.zeros(5, 3, dtype=torch.int64), 1.0)
    with pytest.raises(ValueError, match="normals must have the shape of points"):
        voxel_thin(torch.zeros(5, 3), 1.0, torch.zeros(4, 3))
