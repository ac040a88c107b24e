"""Robust kernels: their costs and weights, recovery among outliers, and exact gradients of the robust pose."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from p2plane import (
    Alignment,
    Cauchy,
    GemanMcClure,
    Huber,
    Trimmed,
    Tukey,
    plane_to_plane,
    point_to_distribution,
    point_to_plane,
    point_to_point,
    se3,
    symmetric_point_to_plane,
)
from tests.clouds import MatchedPair, matched_pair

SMOOTH = [Huber, Cauchy, GemanMcClure, Tukey]
KERNELS = [Huber(0.05), Cauchy(0.05), GemanMcClure(0.1), Tukey(0.2), Trimmed(0.65)]
REDESCENDING = KERNELS[1:]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def everyone(squared: Tensor) -> Tensor:
    return torch.ones_like(squared, dtype=torch.bool)


def with_outliers(
    *batch: int, points: int = 100, share: float = 0.3, noise: float = 0.01, seed: int = 0
) -> MatchedPair:
    """A pair with the first targets displaced by one unit, each its own way, more often along x than not."""
    pair = matched_pair(*batch, points=points, noise=noise, seed=seed)
    push = torch.randn(*batch, round(share * points), 3, generator=generator(100 + seed), dtype=torch.float64)
    push[..., 0] += 1.0
    target = pair.target.clone()
    target[..., : push.shape[-2], :] += push / push.norm(dim=-1, keepdim=True)
    return pair._replace(target=target)


def align(distance: str, pair: MatchedPair, **options) -> Alignment:
    if distance == "plane":
        return point_to_plane(*pair[:4], **options)
    return point_to_point(pair.source, pair.target, pair.weights, **options)


def angle_deg(alignment: Alignment, pair: MatchedPair) -> Tensor:
    chord = (alignment.R - pair.T_target_source[..., :3, :3]).norm(dim=(-2, -1)) / 8**0.5
    return torch.rad2deg(2 * torch.asin(chord.clamp_max(1)))


def misplacement(alignment: Alignment, pair: MatchedPair) -> Tensor:
    """Root mean square distance of the moved points from where they belong."""
    moved, true = se3.apply(alignment.T_target_source, pair.source), se3.apply(pair.T_target_source, pair.source)
    return (moved - true).square().sum(-1).mean(-1).sqrt()


@pytest.mark.parametrize("kernel", SMOOTH)
def test_a_kernel_costs_the_square_near_zero(kernel):
    squared = torch.tensor([[0.0, 1e-9, 1e-8]], dtype=torch.float64)
    assert_close(kernel(0.1).cost(squared, everyone(squared)), squared, rtol=1e-5, atol=1e-20)


@pytest.mark.parametrize("kernel", SMOOTH)
def test_the_weight_of_a_kernel_is_the_slope_of_its_cost(kernel):
    squared = torch.logspace(-6, 2, 50, dtype=torch.float64)[None].requires_grad_()
    (slope,) = torch.autograd.grad(kernel(0.3).cost(squared, everyone(squared)).sum(), squared)
    assert_close(kernel(0.3).weight(squared.detach(), everyone(squared)), slope)


@pytest.mark.parametrize("kernel", SMOOTH)
def test_the_weight_of_a_kernel_falls_from_one_towards_zero(kernel):
    squared = torch.logspace(-6, 4, 200, dtype=torch.float64)[None]
    weight = kernel(0.3).weight(squared, everyone(squared))
    assert ((weight >= 0) & (weight <= 1)).all()
    assert (weight.diff() <= 0).all()
    assert weight[0, 0] > 0.999
    assert weight[0, -1] < 0.01


@pytest.mark.parametrize("kernel", SMOOTH)
def test_the_scale_is_the_unit_of_the_distance(kernel):
    squared = torch.logspace(-3, 3, 20, dtype=torch.float64)[None]
    assert_close(
        kernel(0.1).cost(0.01 * squared, everyone(squared)), 0.01 * kernel(1.0).cost(squared, everyone(squared))
    )


def test_the_costs_of_known_distances():
    squared = torch.tensor([[1.0, 4.0, 9.0]], dtype=torch.float64)  # distances one, two and three scales
    present = everyone(squared)
    assert_close(Huber(1.0).cost(squared, present), torch.tensor([[1.0, 3.0, 5.0]], dtype=torch.float64))
    assert_close(Cauchy(1.0).cost(squared, present), torch.log(torch.tensor([[2.0, 5.0, 10.0]], dtype=torch.float64)))
    assert_close(GemanMcClure(1.0).cost(squared, present), torch.tensor([[0.5, 0.8, 0.9]], dtype=torch.float64))
    assert_close(Tukey(1.0).cost(squared, present), torch.full((1, 3), 1 / 3, dtype=torch.float64))


@pytest.mark.parametrize(("kept", "count"), [(1, 10), (7, 10), (7, 13), (15, 25), (3, 21), (65, 100), (12, 12)])
def test_trimmed_keeps_the_nearest_fraction_of_the_present_pairs(kept, count):
    squared = torch.rand(1, count + 5, generator=generator(0), dtype=torch.float64)
    present = torch.arange(count + 5)[None] >= 5
    squared[:, :5] = 0.0  # the absent are nearest of all
    weight = Trimmed(kept / count).weight(squared, present)
    limit = squared[present].sort().values[kept - 1]
    assert_close(weight, ((squared <= limit) & present).double())
    assert_close(Trimmed(kept / count).cost(squared, present), weight * squared)


@pytest.mark.parametrize("distance", ["plane", "point"])
@pytest.mark.parametrize("kernel", REDESCENDING, ids=repr)
def test_the_truth_is_found_among_thirty_percent_of_gross_outliers(distance, kernel):
    pair = with_outliers(6, points=200, seed=0)
    plain, robust = align(distance, pair), align(distance, pair, robust=kernel)
    assert robust.converged.all()
    assert (misplacement(plain, pair) > 0.1).all()
    assert (misplacement(robust, pair) < 0.5 * misplacement(plain, pair)).all()
    assert (angle_deg(robust, pair) < 5).all()


@pytest.mark.parametrize("distance", ["plane", "point"])
def test_huber_comes_nearer_to_the_truth_than_least_squares(distance):
    pair = with_outliers(6, points=200, seed=0)
    plain, robust = align(distance, pair), align(distance, pair, robust=Huber(0.05))
    assert (misplacement(robust, pair) < 0.7 * misplacement(plain, pair)).all()


def test_outliers_that_carry_every_pair_beyond_the_scale_at_first_do_not_hide_the_truth():
    pair = matched_pair(points=100, noise=0.01, seed=0)
    target = pair.target.clone()
    target[:30, 0] += 1.0  # all one way: least squares ends 0.3 away from everyone
    pair = pair._replace(target=target)
    alignment = align("point", pair, robust=Tukey(0.2))
    assert alignment.converged
    assert angle_deg(alignment, pair) < 5


def robust_energy(kernel, pair: MatchedPair, T: Tensor, distance: str) -> Tensor:
    """The robust energy, written out."""
    errors = se3.apply(T, pair.source) - pair.target
    squared = (errors * pair.normals).sum(-1).square() if distance == "plane" else errors.square().sum(-1)
    weights = pair.weights.expand_as(squared)
    return (weights * kernel.cost(squared, weights > 0)).sum(-1)


@pytest.mark.parametrize("distance", ["plane", "point"])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_no_pose_nearby_has_a_lower_robust_energy(distance, kernel):
    pair = with_outliers(points=60, noise=0.03, seed=2)
    alignment = align(distance, pair, robust=kernel)
    energy = robust_energy(kernel, pair, alignment.T_target_source, distance)
    assert_close(alignment.energy, energy)
    for size in (1e-4, 1e-3):
        twists = size * torch.randn(100, 6, generator=generator(4), dtype=torch.float64)
        nearby = robust_energy(kernel, pair, se3.exp(twists) @ alignment.T_target_source, distance)
        assert (nearby > energy).all()


def tiny(seed: int = 0) -> tuple[list[Tensor], Tensor]:
    """Twelve pairs, two of them outliers: (source, target, target normals, weights, source normals) and a start."""
    pair = with_outliers(points=12, share=2 / 12, noise=0.03, seed=seed)
    normals = torch.randn(2, 12, 3, generator=generator(seed), dtype=torch.float64)
    normals = normals / normals.norm(dim=-1, keepdim=True)
    source_normals = se3.rotate(se3.inverse(pair.T_target_source), normals[0] + 0.1 * normals[1])
    tensors = (pair.source, pair.target, normals[0], pair.weights, source_normals)
    return [tensor.clone().requires_grad_() for tensor in tensors], pair.T_target_source


def flat(normals: Tensor) -> Tensor:
    """Covariances (..., 3, 3) thin along the normals."""
    normals = normals.detach()
    identity = torch.eye(3, dtype=normals.dtype)
    return (identity - 0.9 * normals[..., :, None] * normals[..., None, :]).requires_grad_()


CHECKED = {"fast_mode": True, "eps": 1e-6, "atol": 1e-6, "rtol": 1e-6}


def converged_pose(alignment: Alignment) -> Tensor:
    assert alignment.converged.all()
    return alignment.T_target_source


GENTLE = [Huber(0.05), Cauchy(0.1), GemanMcClure(0.3), Tukey(0.6), Trimmed(0.8)]


@pytest.mark.parametrize("kernel", GENTLE, ids=repr)
def test_the_gradient_of_a_robust_pose_matches_finite_differences(kernel):
    (source, target, normals, weights, _), initial = tiny()

    def pose(*inputs):
        return converged_pose(point_to_plane(*inputs, initial=initial, robust=kernel))

    assert gradcheck(pose, (source, target, normals, weights), **CHECKED)


def test_the_second_derivative_of_a_robust_pose_matches_finite_differences():
    (source, target, normals, weights, _), initial = tiny()

    def pose(*inputs):
        return converged_pose(point_to_plane(*inputs, initial=initial, robust=Cauchy(0.1)))

    assert gradgradcheck(pose, (source, target, normals, weights), **CHECKED)


@pytest.mark.parametrize("distance", ["point", "distribution", "symmetric", "plane_to_plane"])
def test_every_distance_has_the_gradient_of_its_robust_pose(distance):
    (source, target, normals, weights, source_normals), initial = tiny()
    options = {"initial": initial, "robust": GemanMcClure(0.5)}
    function, metric = {
        "point": (point_to_point, ()),
        "distribution": (point_to_distribution, (flat(normals),)),
        "symmetric": (symmetric_point_to_plane, (source_normals, normals)),
        "plane_to_plane": (plane_to_plane, (flat(source_normals), flat(normals))),
    }[distance]

    def pose(*inputs):
        return converged_pose(function(*inputs, **options))

    assert gradcheck(pose, (source, target, *metric, weights), **CHECKED)


def test_with_held_directions_the_gradient_of_a_robust_pose_matches_finite_differences():
    (source, target, normals, weights, _), initial = tiny()

    def pose(*inputs):
        return converged_pose(point_to_plane(*inputs, initial=initial, hold=("rx", "ry", "tz"), robust=Cauchy(0.1)))

    assert gradcheck(pose, (source, target, normals, weights), **CHECKED)


@pytest.mark.parametrize("kernel", [kernel for kernel in KERNELS if not isinstance(kernel, Trimmed)], ids=repr)
def test_a_weight_of_two_is_a_pair_that_stands_twice(kernel):
    pair = with_outliers(points=40, seed=3)
    doubled = pair._replace(weights=torch.where(torch.arange(40) % 3 == 0, 2.0, 1.0).double())
    rows = torch.cat([torch.arange(40), torch.arange(0, 40, 3)])
    twice = MatchedPair(*(tensor[rows] for tensor in pair[:3]), torch.ones(54).double(), pair.T_target_source)
    one, other = (align("plane", each, initial=pair.T_target_source, robust=kernel) for each in (doubled, twice))
    assert_close(one.T_target_source, other.T_target_source, rtol=1e-9, atol=1e-9)
    assert_close(one.energy, other.energy)


@pytest.mark.parametrize("how", ["mask", "weights"])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_absent_pairs_count_for_nothing(kernel, how):
    pair = with_outliers(points=40, seed=3)
    present = torch.arange(40) % 4 != 0
    kept = MatchedPair(*(tensor[present] for tensor in pair[:4]), pair.T_target_source)
    alone = align("plane", kept, initial=pair.T_target_source, robust=kernel)
    if how == "mask":
        nothing = [torch.where(present[:, None], tensor, torch.nan).requires_grad_() for tensor in pair[:3]]
        arrays = (*nothing, pair.weights.clone().requires_grad_())
        alignment = point_to_plane(*arrays, mask=present, initial=pair.T_target_source, robust=kernel)
    else:
        arrays = [tensor.clone().requires_grad_() for tensor in pair[:3]]
        weights = pair.weights * present
        alignment = point_to_plane(*arrays, weights, initial=pair.T_target_source, robust=kernel)
    assert_close(alignment.T_target_source, alone.T_target_source, rtol=1e-9, atol=1e-9)
    for gradient in torch.autograd.grad(alignment.T_target_source.sum(), arrays):
        assert (gradient[~present] == 0).all()
        assert gradient.isfinite().all()
        assert (gradient[present] != 0).any()


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_a_flat_plane_keeps_pose_and_gradient_finite(kernel):
    flat_source = torch.randn(40, 3, generator=generator(0), dtype=torch.float64)
    flat_source[:, 2] = 0.0
    target = flat_source + torch.tensor([0.0, 0.0, 0.1], dtype=torch.float64)
    target[:, 2] += 0.01 * torch.randn(40, generator=generator(1), dtype=torch.float64)
    target[:8, 2] += 1.0
    normals = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64).repeat(40, 1)
    inputs = [tensor.clone().requires_grad_() for tensor in (flat_source, target, normals)]
    alignment = point_to_plane(*inputs, robust=kernel)
    T = alignment.T_target_source
    assert alignment.observability.determined == 3
    assert_close(T[:2, 3], torch.zeros(2, dtype=torch.float64), atol=0.05, rtol=0)
    assert abs(T[2, 3].item() - 0.1) < (0.1 if isinstance(kernel, Huber) else 0.03)
    for gradient in torch.autograd.grad(T.sum(), inputs):
        assert gradient.isfinite().all()
        assert gradient.abs().max() < 100


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_a_batch_gives_each_pair_the_robust_pose_it_has_alone(kernel):
    pair = with_outliers(4, points=60, noise=0.03, seed=5)
    together = align("plane", pair, robust=kernel)
    for index in range(4):
        alone = align("plane", MatchedPair(*(tensor[index] for tensor in pair)), robust=kernel)
        assert_close(together.T_target_source[index], alone.T_target_source, rtol=1e-8, atol=1e-8)
        assert together.converged[index] == alone.converged


def test_a_bad_scale_or_fraction_says_so():
    for scale in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="scale must be positive"):
            Tukey(scale)
    for fraction in (0.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"fraction must be in \(0, 1\]"):
            Trimmed(fraction)
