"""Normals: exact surfaces, symmetries, and neighbourhoods that have none."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from p2plane import plane_to_plane, point_to_plane, se3, so3
from p2plane.geometry import normals
from p2plane.geometry.neighbors import gather, knn
from p2plane.geometry.normals import estimate_normals, orient, plane_covariances
from tests.clouds import surface


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def bumpy(*batch: int, points: int = 300, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Ellipsoids with a little noise, so that no neighbourhood is special."""
    cloud, _ = surface(*batch, points=points, generator=generator(seed))
    return (cloud + 0.01 * torch.randn(cloud.shape, generator=generator(seed + 1), dtype=cloud.dtype)).to(dtype)


def angles(a: Tensor, b: Tensor) -> Tensor:
    """Between lines along unit vectors, in radians."""
    return torch.atan2(torch.linalg.cross(a, b).norm(dim=-1), (a * b).sum(-1).abs())


def assert_same_lines(a: Tensor, b: Tensor, atol: float = 1e-9) -> None:
    assert_close(angles(a, b), torch.zeros_like(a[..., 0]), rtol=0, atol=atol)


@pytest.mark.parametrize("points", [300, 700])  # by blocks, by trees
def test_covariances_and_eigenvalues_are_those_of_the_neighbors(points):
    cloud = bumpy(2, points=points)
    local = estimate_normals(cloud, k=12)
    neighborhoods = gather(cloud, knn(cloud, cloud, 12).indices)
    centered = neighborhoods - neighborhoods.mean(-2, keepdim=True)
    covariances = centered.mT @ centered / 12
    eigenvalues, eigenvectors = torch.linalg.eigh(covariances)
    assert_close(local.covariances, covariances)
    assert_close(local.eigenvalues, eigenvalues)
    assert local.reliable.all()
    assert_same_lines(local.normals, eigenvectors[..., 0])


def test_closed_form_agrees_with_eigh_for_every_shape_of_covariance():
    R = so3.random(5_000, generator=generator(), dtype=torch.float64)
    size = 10 ** (-8 * torch.rand(5_000, 3, generator=generator(1), dtype=torch.float64))
    covariances = R @ (size[..., None] * R.mT) * 1e-4
    eigenvalues, eigenvectors = torch.linalg.eigh(covariances)
    ours, smallest = normals._principal(covariances[:, (0, 1, 2, 0, 1, 2), (0, 1, 2, 1, 2, 0)].mT)
    assert_close(ours, eigenvalues, rtol=0, atol=1e-12)  # 1e-8 of the largest, even of needles
    determined = eigenvalues[:, 1] - eigenvalues[:, 0] > normals._MIN_GAP * eigenvalues[:, 2]
    assert_close(ours[determined], eigenvalues[determined], rtol=0, atol=1e-15)
    assert 1_000 < determined.sum() < 5_000
    assert_same_lines(smallest[determined], eigenvectors[determined, :, 0], atol=math.radians(1e-4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_plane(dtype, offset):
    R = so3.random(generator=generator(), dtype=torch.float64)
    flat = torch.rand(400, 3, generator=generator(), dtype=torch.float64) * torch.tensor([1.0, 1.0, 0.0]).double()
    cloud = (flat @ R.mT + offset).to(dtype)
    local = estimate_normals(cloud)
    assert local.normals.dtype == local.covariances.dtype == local.eigenvalues.dtype == dtype
    assert local.reliable.all()
    rounding = torch.finfo(dtype).eps * (1 + offset)
    assert_same_lines(local.normals.double(), R[:, 2].expand(400, 3), atol=100 * rounding)


def test_planar_grid():
    axis = torch.arange(12.0)
    x, y = torch.meshgrid(axis, axis, indexing="ij")
    local = estimate_normals(torch.stack([x, y, 0 * x], dim=-1).reshape(-1, 3), k=9)
    assert local.reliable.all()
    assert_close(local.normals.abs(), torch.tensor([0.0, 0.0, 1.0]).expand(144, 3))


def test_sphere_and_cylinder():
    directions, _ = surface(points=4_000, generator=generator())
    directions = torch.nn.functional.normalize(directions - directions.mean(0), dim=-1)
    assert angles(estimate_normals(directions).normals, directions).median() < 0.02
    around = 2 * math.pi * torch.rand(4_000, generator=generator(), dtype=torch.float64)
    along = torch.rand(4_000, generator=generator(1), dtype=torch.float64)
    exact = torch.stack([around.cos(), around.sin(), 0 * along], dim=-1)
    cylinder = exact + along[:, None] * torch.tensor([0.0, 0.0, 1.0]).double()
    assert angles(estimate_normals(cylinder).normals, exact).median() < 0.02


def test_moving_the_cloud_moves_the_normals():
    cloud, T = bumpy(3), se3.random(3, generator=generator(), dtype=torch.float64)
    before, after = estimate_normals(cloud), estimate_normals(se3.apply(T, cloud))
    assert_same_lines(after.normals, se3.rotate(T, before.normals))
    R = T[:, None, :3, :3]
    assert_close(after.covariances, R @ before.covariances @ R.mT)
    assert_close(after.eigenvalues, before.eigenvalues)


@pytest.mark.parametrize(("dtype", "offset"), [(torch.float64, 1e6), (torch.float32, 1e3)])
@pytest.mark.parametrize("points", [300, 700])
def test_far_from_the_origin_only_the_rounding_of_the_points_counts(dtype, offset, points):
    moved = (bumpy(points=points) + offset).to(dtype)
    back = moved.double() - offset  # the same rounded points, exactly
    precision = 1e-9 if dtype == torch.float64 else 1e-6
    assert_same_lines(estimate_normals(moved).normals.double(), estimate_normals(back).normals, atol=precision)


def test_permuting_points_permutes_normals():
    cloud = bumpy()
    order = torch.randperm(300, generator=generator())
    before, after = estimate_normals(cloud), estimate_normals(cloud[order])
    assert_same_lines(after.normals, before.normals[order])
    assert_close(after.covariances, before.covariances[order])


def test_a_batch_is_its_clouds_one_by_one():
    clouds = bumpy(2, 3, points=60)
    together = estimate_normals(clouds, k=10, radius=0.5)
    assert together.normals.shape == (2, 3, 60, 3)
    assert together.covariances.shape == (2, 3, 60, 3, 3)
    for i in range(2):
        for j in range(3):
            assert_close(estimate_normals(clouds[i, j], k=10, radius=0.5), type(together)(*(e[i, j] for e in together)))


def test_a_radius_leaves_far_neighbors_out():
    cloud = bumpy()
    wide = estimate_normals(cloud, radius=100.0)
    assert_close(wide, estimate_normals(cloud))
    local = estimate_normals(cloud, k=40, radius=0.3)
    apart = torch.cdist(cloud, cloud)
    few = [i for i in range(300) if (apart[i] < 0.3).sum() <= 40]
    assert len(few) > 20
    for i in few:
        assert_close(local.covariances[i], torch.cov(cloud[apart[i] < 0.3].mT, correction=0))


def test_padding_does_not_matter():
    clouds = bumpy(2, points=40)
    mask = torch.ones(2, 50, dtype=torch.bool)
    mask[:, ::5] = False
    padded = torch.full((2, 50, 3), torch.nan, dtype=torch.float64)
    padded[mask] = clouds.flatten(0, 1)
    for radius in (None, 0.4):
        expected = estimate_normals(clouds, k=8, radius=radius)
        result = estimate_normals(padded, k=8, radius=radius, mask=mask, viewpoint=torch.zeros(3))
        assert_same_lines(result.normals[mask].where(result.reliable[mask, None], 1), expected.normals.flatten(0, 1))
        assert_close(result.covariances[mask], expected.covariances.flatten(0, 1))
        assert_close(result.reliable[mask], expected.reliable.flatten())
        for tensor in (result.normals, result.covariances, result.eigenvalues):
            assert tensor.isfinite().all()
            assert (tensor[~mask] == 0).all()
        assert not result.reliable[~mask].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["equal", "line", "skew line", "two", "one", "cube", "none"])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_neighborhoods_without_a_normal(name, dtype, offset):
    steps = torch.linspace(0, 1, 30, dtype=torch.float64)[:, None]
    corners = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 3).double()
    cloud = {
        "equal": torch.ones(30, 3),
        "line": steps * torch.tensor([1.0, 0.0, 0.0]),
        "skew line": steps * torch.tensor([0.3, -0.5, 0.8]),
        "two": torch.eye(3)[:2],
        "one": torch.ones(1, 3),
        "cube": corners,
        "none": torch.ones(0, 3),
    }[name]
    local = estimate_normals((cloud + offset).to(dtype))
    assert not local.reliable.any()
    assert_close(local.normals, torch.zeros_like(local.normals))
    assert local.covariances.isfinite().all()
    assert (local.eigenvalues >= 0).all()


def test_an_isolated_point_is_found_out_by_a_radius():
    cloud = torch.cat([bumpy(), torch.full((1, 3), 9.0, dtype=torch.float64)])
    local = estimate_normals(cloud, radius=0.8)
    assert local.reliable[:-1].all()
    assert not local.reliable[-1]
    assert_close(local.normals[-1], torch.zeros(3, dtype=torch.float64))
    assert_close(local.normals[:-1].norm(dim=-1), torch.ones(300, dtype=torch.float64))


@pytest.mark.parametrize("batched", [False, True])
def test_normals_point_to_the_viewpoint(batched):
    clouds = bumpy(4, points=100)
    viewpoint = torch.randn(4, 3, generator=generator(), dtype=torch.float64) if batched else torch.ones(3).double()
    local = estimate_normals(clouds, viewpoint=viewpoint)
    towards = (viewpoint[:, None] if batched else viewpoint) - clouds
    assert ((local.normals * towards).sum(-1) > 0).all()
    assert_same_lines(local.normals, estimate_normals(clouds).normals)
    assert_close(orient(-local.normals, clouds, viewpoint), local.normals)


def test_gradients_stop():
    cloud = bumpy(points=40).requires_grad_()
    assert not any(tensor.requires_grad for tensor in estimate_normals(cloud))
    (cloud * estimate_normals(torch.ones(40, 3)).normals).sum().backward()
    assert cloud.grad.isfinite().all()


def test_plane_covariances_have_epsilon_along_the_normal_and_one_across():
    directions = torch.nn.functional.normalize(torch.randn(7, 3, generator=generator(), dtype=torch.float64), dim=-1)
    covariances = plane_covariances(directions, epsilon=1e-2)
    eigenvalues, eigenvectors = torch.linalg.eigh(covariances)
    assert_close(eigenvalues, torch.tensor([1e-2, 1.0, 1.0], dtype=torch.float64).expand(7, 3))
    assert_same_lines(eigenvectors[..., 0], directions, atol=1e-7)
    assert_close(plane_covariances(torch.zeros(1, 3)), torch.eye(3)[None])
    assert torch.autograd.gradcheck(plane_covariances, directions.requires_grad_())


def test_the_solver_takes_what_comes_out():
    source = bumpy(points=200)
    T = se3.random(generator=generator(), dtype=torch.float64)
    target = torch.cat([se3.apply(T, source), torch.full((1, 3), 9.0, dtype=torch.float64)])
    source = torch.cat([source, torch.zeros(1, 3, dtype=torch.float64)])  # a wrong pair, whose normal is zero
    local = estimate_normals(target, radius=0.8)
    assert_close(point_to_plane(source, target, local.normals).T_target_source, T)
    a, b = plane_covariances(estimate_normals(source).normals), plane_covariances(local.normals)
    weights = local.reliable.double()
    assert_close(plane_to_plane(source, target, a, b, weights).T_target_source, T)


def test_says_what_is_wrong():
    cloud = bumpy(2, points=30)
    broken = cloud.clone()
    broken[1, 7, 2] = torch.inf
    for points, settings, message in [
        (cloud[..., :2], {}, r"points must have shape \(\.\.\., N, 3\), got \(2, 30, 2\)"),
        (cloud, {"k": 2}, "k must be an integer of at least 3, got 2"),
        (cloud, {"radius": -1.0}, r"radius must be positive and finite, got -1\.0"),
        (cloud, {"mask": torch.ones(2, 30)}, r"mask must be boolean with shape \(2, 30\), got torch\.float32"),
        (cloud, {"viewpoint": torch.ones(3, 3)}, r"viewpoint must have shape \(3,\) or \(2, 3\), got \(3, 3\)"),
        (broken, {}, r"points must be finite .* at \(1, 7\); leave such points out with mask"),
    ]:
        with pytest.raises(ValueError, match=message):
            estimate_normals(points, **settings)
    with pytest.raises(ValueError, match=r"epsilon must be in \(0, 1\], got 0"):
        plane_covariances(cloud, epsilon=0)
    with pytest.raises(ValueError, match=r"normals must have shape \(\.\.\., N, 3\), got \(2, 30, 2\)"):
        plane_covariances(cloud[..., :2])
