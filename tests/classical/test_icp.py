"""ICP finds a known motion, obeys its symmetries, and stays honest about hard and bad input."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from p2plane import Alignment, Cauchy, Huber, Trimmed, Tukey, point_to_plane, se3
from p2plane.classical.icp import icp
from p2plane.classical.problems import DISTANCES
from p2plane.classical.scales import Scale, coarse_to_fine
from p2plane.evaluation.metrics import rotation_error, translation_error

T_TRUE = se3.exp(torch.tensor([0.1, -0.08, 0.12, 0.05, -0.06, 0.04], dtype=torch.float64))


def surface(points: int, seed: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Points and unit normals (N, 3) of a lopsided box with bumps, at no two seeds the same points."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(points, 2, generator=generator, dtype=torch.float64) * 2 - 1
    height = 0.3 * (2 * u[:, 0]).sin() + 0.2 * (3 * u[:, 1]).cos() * u[:, 0]
    by_x = 0.6 * (2 * u[:, 0]).cos() + 0.2 * (3 * u[:, 1]).cos()
    by_y = -0.6 * (3 * u[:, 1]).sin() * u[:, 0]
    normals = torch.stack([-by_x, -by_y, torch.ones_like(by_x)], dim=-1)
    normals = normals / normals.norm(dim=-1, keepdim=True)
    return torch.cat([u, height[:, None]], dim=-1).to(dtype), normals.to(dtype)


def scene(points: int = 1500, T: Tensor = T_TRUE, seed: int = 0, copy: bool = False) -> tuple[Tensor, ...]:
    """Source, target, and their normals; the source another sample of the target's surface, or a mixed copy of it."""
    target, target_normals = surface(points, seed)
    if copy:
        order = torch.randperm(points, generator=torch.Generator().manual_seed(seed))
        source, source_normals = target[order], target_normals[order]
    else:
        source, source_normals = surface(points, seed + 100)
    inverse = se3.inverse(T)
    return se3.apply(inverse, source), target, se3.rotate(inverse, source_normals), target_normals


def errors(alignment: Alignment, T: Tensor = T_TRUE) -> tuple[float, float]:
    """Radians and length between an alignment's pose and the true one."""
    found = alignment.T_target_source.double()
    return float(rotation_error(found, T)), float(translation_error(found, T))


@pytest.mark.parametrize("distance", DISTANCES)
def test_finds_the_motion_of_a_copy_exactly(distance: str) -> None:
    T = se3.exp(torch.tensor([0.02, -0.01, 0.03, 0.01, -0.02, 0.01], dtype=torch.float64))
    alignment = icp(*scene(T=T, copy=True), distance=distance)
    assert alignment.converged
    assert max(errors(alignment, T)) < 1e-6
    assert alignment.energy < 1e-10
    assert alignment.residuals.shape == (1500,)


@pytest.mark.parametrize(("distance", "tolerance"), [("plane", 3e-3), ("symmetric", 2e-3), ("plane-to-plane", 4e-3)])
def test_finds_the_motion_between_two_samples_of_a_surface(distance: str, tolerance: float) -> None:
    alignment = icp(*scene(), distance=distance, max_distance=0.3)
    assert alignment.converged
    assert max(errors(alignment)) < tolerance
    assert not alignment.normals_estimated


def test_missing_normals_are_estimated_and_the_result_says_so() -> None:
    source, target, _, _ = scene()
    alignment = icp(source, target, max_distance=0.3)
    assert alignment.normals_estimated
    assert max(errors(alignment)) < 5e-3
    assert not icp(source, target, distance="point", max_iterations=2).normals_estimated


def test_coarse_to_fine_reaches_farther_than_one_scale() -> None:
    T = se3.exp(torch.tensor([0.3, -0.35, 0.4, 0.3, -0.3, 0.9], dtype=torch.float64))
    clouds = scene(4000, T)
    fine = icp(*clouds, max_distance=0.03)
    coarse = icp(*clouds, scales=[Scale(0.2, 1.0), Scale(0.1, 0.3), Scale(None, 0.03)])
    assert max(errors(fine, T)) > 0.1
    assert coarse.converged
    assert max(errors(coarse, T)) < 2e-3
    assert coarse.residuals.shape == (4000,)


def test_a_thinned_last_scale_tells_the_rows_of_its_pairs() -> None:
    source, target, source_normals, target_normals = scene()
    alignment = icp(source, target, source_normals, target_normals, scales=coarse_to_fine(0.1, levels=2))
    (last,) = alignment.rounds
    ours, theirs = last.extras["source_rows"][0], last.extras["target_rows"][0]
    assert ours.shape == theirs.shape == last.source.shape[1:2]
    assert ours.shape[0] < 1500
    assert ((source[ours] - last.source[0]).norm(dim=-1) < 0.1 * math.sqrt(3)).all()
    kept = theirs >= 0
    assert ((target[theirs] - last.matched[0]).norm(dim=-1)[kept] < 0.1 * math.sqrt(3)).all()
    assert_close(last.weights, kept[None].double())


def test_the_last_round_holds_the_nearest_points() -> None:
    source, target, source_normals, target_normals = scene(600)
    alignment = icp(source, target, source_normals, target_normals, max_distance=0.08)
    (last,) = alignment.rounds
    apart, nearest = torch.cdist(se3.apply(alignment.T_target_source, source), target).min(-1)
    assert_close(last.extras["target_rows"][0], nearest.where(apart <= 0.08, -1))
    assert_close(last.matched[0][apart <= 0.08], target[nearest][apart <= 0.08])


@pytest.mark.parametrize("rule", [{}, {"rmse_tolerance": 1e-3}])
def test_the_pose_fits_the_pairs_of_the_last_round(rule: dict[str, Any]) -> None:
    source, target, _, normals = scene()
    alignment = icp(source, target, target_normals=normals, **rule)
    assert alignment.converged
    rows = alignment.rounds[0].extras["target_rows"][0]
    best = point_to_plane(source, target[rows], normals[rows], initial=alignment.T_target_source)
    assert_close(alignment.T_target_source, best.T_target_source, rtol=0, atol=1e-6)


def test_moving_both_clouds_moves_the_answer() -> None:
    source, target, source_normals, target_normals = scene(800)
    generator = torch.Generator().manual_seed(5)
    A, B = se3.random(2, generator=generator, dtype=torch.float64)  # A_moved_source, B_moved_target
    plain = icp(source, target, source_normals, target_normals)
    start = B @ se3.inverse(A)
    moved = icp(
        se3.apply(A, source),
        se3.apply(B, target),
        se3.rotate(A, source_normals),
        se3.rotate(B, target_normals),
        initial=start,
    )
    assert_close(moved.T_target_source, B @ plain.T_target_source @ se3.inverse(A), atol=1e-6, rtol=0)
    assert moved.iterations == plain.iterations


@pytest.mark.parametrize("distance", DISTANCES)
def test_neither_the_order_nor_the_unit_nor_the_signs_of_normals_matter(distance: str) -> None:
    clouds = scene(500)
    plain = icp(*clouds, distance=distance, max_iterations=8)
    orders = [torch.randperm(500, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    signs = [torch.where(order % 2 == 0, 1.0, -1.0)[:, None].double() for order in orders]
    mixed = [cloud[order] for cloud, order in zip(clouds, orders * 2, strict=True)]
    mixed = [1000 * mixed[0], 1000 * mixed[1], signs[0] * mixed[2], signs[1] * mixed[3]]
    other = icp(*mixed, distance=distance, max_iterations=8)
    expected = plain.T_target_source.clone()
    expected[:3, 3] *= 1000
    assert_close(other.T_target_source, expected, atol=1e-6, rtol=1e-6)
    # Heights over planes change their signs with the normals. Mahalanobis distances have the unit of the clouds too.
    assert_close(other.residuals[orders[0].argsort()].abs(), plain.residuals.abs() * 1000, atol=1e-4, rtol=1e-5)


def outliers(share: float = 0.3, points: int = 1500) -> tuple[Tensor, ...]:
    """A scene where a share of the source, a blob beside the surface, has nothing to do with the target."""
    source, target, source_normals, target_normals = scene(points)
    count = int(share * points)
    generator = torch.Generator().manual_seed(9)
    blob = torch.rand(count, 3, generator=generator, dtype=torch.float64) * 0.6 + torch.tensor([0.3, 0.3, 0.4])
    return torch.cat([source[count:], blob]), target, source_normals, target_normals


@pytest.mark.parametrize(
    "remedy", [{"trim": 0.68}, {"robust": Tukey(0.1)}, {"robust": Trimmed(0.65)}, {"max_distance": 0.15}]
)
def test_outliers_are_left_out(remedy: dict[str, Any]) -> None:
    clouds = outliers()
    spoilt = icp(*clouds)
    healed = icp(*clouds, **remedy)
    assert max(errors(spoilt)) > 0.02
    assert max(errors(healed)) < 5e-3
    assert healed.converged


@pytest.mark.parametrize("kernel", [Huber(0.02), Cauchy(0.02)])
def test_kernels_that_never_let_go_still_help(kernel: Huber | Cauchy) -> None:
    clouds = outliers(0.1)
    assert max(errors(icp(*clouds, robust=kernel))) < max(errors(icp(*clouds))) / 2


def test_pairs_whose_normals_disagree_do_not_count() -> None:
    source, target, source_normals, target_normals = scene(600)
    walls = torch.tensor([1.0, 0, 0], dtype=torch.float64).expand(600, 3)  # turned by more than 45 degrees, all of them
    mixed = torch.where(torch.arange(600)[:, None] < 200, walls, source_normals)
    alignment = icp(source, target, mixed, target_normals, max_normal_angle=math.radians(35))
    kept = alignment.rounds[0].extras["target_rows"][0] >= 0
    assert kept[200:].double().mean() > 0.9
    assert kept[:200].double().mean() < 0.3
    assert max(errors(alignment)) < 6e-3


@pytest.mark.parametrize("distance", DISTANCES)
def test_held_directions_stay_where_they_were(distance: str) -> None:
    start = se3.exp(torch.tensor([0.0, 0, 0.1, 0.02, 0.03, 0.05], dtype=torch.float64))
    T = se3.exp(torch.tensor([0.0, 0, 0.2, 0.06, -0.04, 0.05], dtype=torch.float64))
    alignment = icp(*scene(T=T), distance=distance, initial=start, hold=("rx", "ry", "tz"), max_iterations=30)
    R, t = alignment.R, alignment.t
    up = torch.tensor([0.0, 0, 1], dtype=torch.float64)
    assert_close(R @ up, up, atol=1e-12, rtol=0)
    assert_close(t[2], start[2, 3], atol=1e-12, rtol=0)
    assert max(errors(alignment, T)) < (0.05 if distance == "point" else 5e-3)


def test_map_coordinates_in_single_precision() -> None:
    source, target, source_normals, target_normals = scene(1500)
    shift = torch.tensor([4.0e5, -2.0e5, 300.0], dtype=torch.float64)
    clouds = [(100 * each + shift).float() for each in (source, target)]
    alignment = icp(*clouds, source_normals.float(), target_normals.float(), max_distance=30.0)
    assert alignment.T_target_source.dtype == torch.float32
    assert alignment.converged
    near = icp(100 * source, 100 * target, source_normals, target_normals, max_distance=30.0)
    # Compare where the poses put the cloud; a step of float32 is 0.03 there, and t belongs to a point far away.
    there = se3.apply(alignment.T_target_source.double(), clouds[0].double()) - shift
    assert (there - se3.apply(near.T_target_source, 100 * source)).norm(dim=-1).max() < 0.15


def test_a_batch_is_its_pairs_one_by_one() -> None:
    scenes = [scene(300, seed=seed) for seed in range(3)]
    stacked = [torch.stack(each) for each in zip(*scenes, strict=True)]
    mask = torch.ones(3, 300, dtype=torch.bool)
    mask[1, 250:] = False
    stacked[0][1, 250:] = torch.nan
    batch = icp(*stacked, source_mask=mask, max_distance=0.3)
    assert batch.T_target_source.shape == (3, 4, 4)
    for i, clouds in enumerate(scenes):
        rows = mask[i]
        alone = icp(clouds[0][rows], clouds[1], clouds[2][rows], clouds[3], max_distance=0.3)
        assert_close(batch.T_target_source[i], alone.T_target_source)
        assert_close(batch.energy[i], alone.energy)
        assert batch.iterations[i] == alone.iterations
    grid = icp(*(each.view(3, 1, *each.shape[1:]) for each in stacked), source_mask=mask[:, None], max_distance=0.3)
    assert_close(grid.T_target_source[:, 0], batch.T_target_source)


def test_one_target_serves_many_sources_and_numpy_arrays_are_welcome() -> None:
    source, target, _, target_normals = scene(300)
    many = icp(source.expand(2, -1, -1), target, target_normals=target_normals)
    one = icp(source.numpy(), target.numpy(), target_normals=target_normals.numpy())
    assert_close(many.T_target_source, one.T_target_source.expand(2, 4, 4))


def empty(count: int) -> Tensor:
    return torch.zeros(count, 3, dtype=torch.float64)


DEGENERATE = {
    "no source": (empty(0), surface(50, 0)[0]),
    "no target": (surface(50, 0)[0], empty(0)),
    "nothing": (empty(0), empty(0)),
    "one point": (empty(1) + 0.1, empty(1)),
    "one point onto a surface": (empty(1) + 0.1, surface(50, 0)[0]),
    "two points": (surface(2, 0)[0], surface(50, 0)[0]),
    "no overlap": (surface(50, 0)[0] + 100, surface(50, 1)[0]),
}


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("name", DEGENERATE)
@pytest.mark.parametrize("differentiable", [False, True])
def test_hopeless_pairs_stay_at_the_start_and_say_so(name: str, distance: str, differentiable: bool) -> None:
    source, target = DEGENERATE[name]
    start = se3.exp(torch.tensor([0.0, 0, 0.1, 0.02, 0.03, 0.05], dtype=torch.float64))
    alignment = icp(source, target, initial=start, distance=distance, max_distance=5.0, differentiable=differentiable)
    assert not alignment.converged
    assert_close(alignment.T_target_source, start)
    for value in (alignment.energy, alignment.residuals, alignment.information, alignment.covariance):
        assert value.isfinite().all()


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("shape", ["plane", "line", "repeated point"])
def test_undetermined_directions_stay_at_the_start(shape: str, distance: str) -> None:
    points = torch.rand(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    points[:, {"plane": 2, "line": slice(1, 3), "repeated point": slice(0, 3)}[shape]] = 0
    start = se3.from_rotation_translation(torch.eye(3).double(), torch.tensor([0.0, 0, 0.1]).double())
    alignment = icp(points, points, initial=start, distance=distance)
    T = alignment.T_target_source
    assert T.isfinite().all()
    if shape != "plane" or distance in ("plane", "symmetric"):
        assert alignment.observability.determined < 6
    assert_close(T[:2, 3], torch.zeros(2, dtype=torch.float64), atol=1e-6, rtol=0)
    assert_close(T[:3, :3], torch.eye(3, dtype=torch.float64), atol=1e-6, rtol=0)
    if shape == "plane":
        assert abs(T[2, 3]) < 1e-9  # what the data does determine is found


def test_stops_where_single_precision_cannot_tell_any_more() -> None:
    clouds = [each.float() for each in scene(1500)]
    coarse = icp(*clouds)
    fine = icp(*(each.double() for each in clouds))
    assert coarse.converged
    assert fine.converged
    assert coarse.iterations <= fine.iterations
    assert_close(coarse.T_target_source.double(), fine.T_target_source, atol=1e-4, rtol=0)


def test_too_few_rounds_are_not_called_converged() -> None:
    alignment = icp(*scene(300), max_iterations=2)
    assert not alignment.converged
    assert alignment.iterations == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": torch.zeros(5, 2)}, r"source must be floating point of shape \(\.\.\., N, 3\)"),
        ({"target": torch.zeros(5, 3, dtype=torch.int32)}, "target must be floating point"),
        ({"target": [[0.0, 0, 0]]}, "target must be a tensor or a NumPy array, got list"),
        ({"source": torch.full((5, 3), torch.nan)}, "source must be finite .* at point 0 of pair 0"),
        ({"source": torch.zeros(2, 5, 3), "target": torch.zeros(3, 5, 3)}, "target must have a batch shape that fits"),
        ({"target_normals": torch.zeros(4, 3)}, "target_normals must have the shape of target"),
        ({"source_mask": torch.ones(5)}, "source_mask must be bool"),
        ({"distance": "planes"}, "distance must be one of"),
        ({"trim": 0.0}, r"trim must be in \(0, 1\]"),
        ({"max_distance": -1.0}, "max_distance must be positive"),
        ({"max_iterations": 0}, "max_iterations must be a positive integer"),
        ({"max_normal_angle": 0.0}, "max_normal_angle must be positive"),
        ({"tolerance": -1e-3}, "tolerance must be positive"),
        ({"hold": ("rx",)}, "hold must name none, two or all"),
        ({"robust": 0.1}, "robust must be a kernel"),
        ({"initial": torch.zeros(4, 4)}, "initial must hold rigid transforms"),
        ({"initial": torch.eye(3)}, r"initial must have shape \(\.\.\., 4, 4\)"),
        ({"undetermined_below": 2.0}, "undetermined_below must be between 0 and 1"),
        ({"scales": [0.1]}, "scales must hold Scale objects, got 0.1"),
    ],
)
def test_bad_input_is_named(arguments: dict[str, Any], message: str) -> None:
    clouds = {"source": torch.rand(5, 3), "target": torch.rand(5, 3)}
    with pytest.raises(ValueError, match=message):
        icp(**(clouds | arguments))


def test_bad_scales_are_named() -> None:
    with pytest.raises(ValueError, match="voxel must be positive"):
        Scale(0.0)
    with pytest.raises(ValueError, match="levels must be a positive integer"):
        coarse_to_fine(0.1, levels=0)


def test_scales_halve_and_so_do_their_kernels() -> None:
    scales = coarse_to_fine(0.1, reach=2.0, kernel=Tukey)
    assert scales == [
        Scale(0.4, 0.8, None, Tukey(0.4)),
        Scale(0.2, 0.4, None, Tukey(0.2)),
        Scale(0.1, 0.2, None, Tukey(0.1)),
    ]
    assert max(errors(icp(*outliers(), scales=scales))) < 5e-3


def test_numpy_and_torch_agree_on_the_type_of_the_result() -> None:
    source, target, *_ = scene(100)
    alignment = icp(source.numpy().astype(np.float32), target.float())
    assert alignment.T_target_source.dtype == torch.float32
