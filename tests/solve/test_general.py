"""Proposition 1 for any energy, and the two distances whose metric turns with the pose."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from p2plane import (
    Alignment,
    implicit_pose,
    plane_to_plane,
    point_to_distribution,
    point_to_plane,
    point_to_point,
    se3,
    symmetric_point_to_plane,
)
from tests.clouds import MatchedPair, matched_pair

CHECKED = {"fast_mode": True, "eps": 1e-6, "atol": 1e-6, "rtol": 1e-6}
DISTANCES = ["symmetric", "plane_to_plane"]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def leaves(*tensors: Tensor) -> list[Tensor]:
    return [tensor.detach().clone().requires_grad_() for tensor in tensors]


def scattered_pair(*batch: int, points: int = 12, noise: float = 0.05, seed: int = 0) -> MatchedPair:
    """A pair whose normals point anywhere: a few points determine it well."""
    pair = matched_pair(*batch, points=points, noise=noise, seed=seed)
    normals = torch.randn(pair.normals.shape, generator=generator(seed), dtype=torch.float64)
    return pair._replace(normals=normals / normals.norm(dim=-1, keepdim=True))


def plane_energy(T: Tensor, source: Tensor, target: Tensor, normals: Tensor, weights: Tensor) -> Tensor:
    heights = ((se3.apply(T, source) - target) * normals).sum(-1)
    return (weights * heights.square()).sum(-1)


def soft_energy(T: Tensor, source: Tensor, target: Tensor, normals: Tensor, weights: Tensor) -> Tensor:
    """A user's own: a smooth Huber on heights, and a little of a fourth power on lengths."""
    errors = se3.apply(T, source) - target
    heights = (errors * normals).sum(-1) / 0.05
    return (weights * ((1 + heights.square()).sqrt() - 1 + errors.square().sum(-1).square())).sum(-1)


def newton(energy, T: Tensor, *theta: Tensor) -> Tensor:
    """A user's own solver for one pair: Newton's method on the six tangent coordinates."""
    theta = tuple(tensor.detach() for tensor in theta)
    zero = torch.zeros(6, dtype=torch.float64)
    for _ in range(8):

        def along(xi: Tensor, T: Tensor = T) -> Tensor:
            return energy(se3.exp(xi) @ T, *theta)

        gradient, hessian = torch.func.grad(along)(zero), torch.func.jacrev(torch.func.grad(along))(zero)
        T = se3.exp(-torch.linalg.solve(hessian, gradient)) @ T
    assert gradient.norm() < 1e-12
    return T


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_the_general_layer_has_the_gradient_of_the_closed_form(batch):
    pair = matched_pair(*batch, points=64, noise=0.1, seed=0)
    inputs = leaves(*pair[:4])
    T = point_to_plane(*inputs, initial=pair.T_target_source).T_target_source
    T_implicit = implicit_pose(plane_energy, T.detach(), *inputs)
    assert_close(T_implicit, T)
    G = torch.randn(T.shape, generator=generator(1), dtype=torch.float64)
    closed, general = (torch.autograd.grad((G * pose).sum(), inputs) for pose in (T, T_implicit))
    for one, other in zip(general, closed, strict=True):
        assert ((one - other).norm() / other.norm()) <= 1e-9


def test_the_general_layer_is_differentiable_twice():
    pair = scattered_pair(noise=0.02, seed=1)

    def pose(*theta):
        T = point_to_plane(*(tensor.detach() for tensor in theta), initial=pair.T_target_source).T_target_source
        return implicit_pose(plane_energy, T, *theta)

    assert gradgradcheck(pose, leaves(*pair[:4]), **CHECKED)


def test_an_energy_and_a_solver_of_ones_own_have_the_gradient_of_finite_differences():
    pair = scattered_pair(noise=0.03)

    def pose(*theta):
        return implicit_pose(soft_energy, newton(soft_energy, pair.T_target_source, *theta), *theta)

    assert gradcheck(pose, leaves(*pair[:4]), **CHECKED)
    assert gradgradcheck(pose, leaves(*pair[:4]), **CHECKED)


def test_no_gradient_flows_along_directions_that_an_energy_leaves_open():
    source = torch.randn(20, 3, generator=generator(0), dtype=torch.float64)
    source[:, 2] = 0.0
    normals = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64).repeat(20, 1)
    inputs = leaves(source, source, normals, torch.ones(20, dtype=torch.float64))
    T = implicit_pose(plane_energy, torch.eye(4, dtype=torch.float64), *inputs)
    for open_entry in ((0, 3), (1, 3), (0, 1)):  # sliding, and turning about the normal
        for gradient in torch.autograd.grad(T[open_entry], inputs, retain_graph=True):
            assert gradient.abs().max() <= 1e-12
    to_target = torch.autograd.grad(T[2, 3], inputs[1])[0]
    assert_close(to_target[:, 2].sum(), torch.tensor(1.0, dtype=torch.float64))


def test_a_flat_plane_under_noise_has_a_finite_gradient_in_the_general_layer():
    source = torch.randn(20, 3, generator=generator(0), dtype=torch.float64)
    target = source.clone()
    source[:, 2] = 0.0
    normals = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64).repeat(20, 1)
    inputs = leaves(source, target, normals)
    T = point_to_plane(*inputs).T_target_source.detach()
    weights = torch.ones(20, dtype=torch.float64)
    T = implicit_pose(plane_energy, T, *inputs, weights)
    for gradient in torch.autograd.grad(T.sum(), inputs):
        assert gradient.isfinite().all()
        assert 0 < gradient.abs().max() < 100


def thin(normals: Tensor, thickness: float = 0.1) -> Tensor:
    """Covariances (..., 3, 3) with the variance `thickness` along the normals and one across them."""
    return torch.eye(3, dtype=normals.dtype) - (1 - thickness) * normals[..., :, None] * normals[..., None, :]


def arrays(distance: str, pair: MatchedPair) -> tuple[Tensor, ...]:
    """Source, target and the two sides of a metric; the source normals a little off, as estimated ones are."""
    off = 0.05 * torch.randn(pair.normals.shape, generator=generator(7), dtype=torch.float64)
    source_normals = se3.rotate(se3.inverse(pair.T_target_source), pair.normals + off)
    source_normals = source_normals / source_normals.norm(dim=-1, keepdim=True)
    if distance == "symmetric":
        return pair.source, pair.target, source_normals, pair.normals
    return pair.source, pair.target, thin(source_normals), thin(pair.normals)


def align(distance: str, *inputs: Tensor, **options) -> Alignment:
    function = symmetric_point_to_plane if distance == "symmetric" else plane_to_plane
    return function(*inputs, **options)


def metric_at(distance: str, T: Tensor, source_side: Tensor, target_side: Tensor) -> Tensor:
    """(..., N, 3, 3) W_i at a pose, written out."""
    R = T[..., None, :3, :3]
    if distance == "plane_to_plane":
        return torch.linalg.inv(target_side + R @ source_side @ R.mT)
    turned = (R @ source_side[..., None]).squeeze(-1)
    normals = turned + torch.sign((turned * target_side).sum(-1, keepdim=True)) * target_side
    normals = normals / normals.norm(dim=-1, keepdim=True)
    return normals[..., :, None] * normals[..., None, :]


def full_energy(distance: str, T: Tensor, source: Tensor, target: Tensor, *sides: Tensor) -> Tensor:
    errors = se3.apply(T, source) - target
    return torch.einsum("...na,...nab,...nb->...", errors, metric_at(distance, T, *sides), errors)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("form", ["full", "iterated", "fixed"])
def test_each_form_has_the_gradient_of_finite_differences(distance, form):
    pair = scattered_pair(seed=2)

    def pose(*inputs):
        alignment = align(distance, *inputs, form=form, initial=pair.T_target_source)
        assert alignment.converged
        return alignment.T_target_source

    assert gradcheck(pose, leaves(*arrays(distance, pair), pair.weights), **CHECKED)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("form", ["full", "iterated"])
def test_each_form_is_differentiable_twice(distance, form):
    pair = scattered_pair(seed=2)

    def pose(*inputs):
        return align(distance, *inputs, form=form, initial=pair.T_target_source).T_target_source

    assert gradgradcheck(pose, leaves(*arrays(distance, pair)), **CHECKED)


@pytest.mark.parametrize("distance", DISTANCES)
def test_the_full_form_is_the_minimum_of_its_energy(distance):
    pair = scattered_pair(points=40, seed=1)
    inputs = arrays(distance, pair)
    alignment = align(distance, *inputs, form="full")
    energy = full_energy(distance, alignment.T_target_source, *inputs)
    assert_close(alignment.energy, energy)
    for size in (1e-4, 1e-2):
        twists = size * torch.randn(100, 6, generator=generator(4), dtype=torch.float64)
        nearby = full_energy(distance, se3.exp(twists) @ alignment.T_target_source, *inputs)
        assert (nearby > energy).all()


@pytest.mark.parametrize("distance", DISTANCES)
def test_the_full_form_never_ends_above_the_energy_it_starts_from(distance):
    pair = matched_pair(20, points=64, noise=0.02, seed=0)
    inputs = arrays(distance, pair)
    alignment = align(distance, *inputs, initial=pair.T_target_source, form="full")
    assert (alignment.energy <= full_energy(distance, pair.T_target_source, *inputs)).all()


@pytest.mark.parametrize("distance", DISTANCES)
def test_the_iterated_form_is_a_fixed_point(distance):
    pair = scattered_pair(points=40, seed=1)
    source, target, *sides = arrays(distance, pair)
    T = align(distance, source, target, *sides, pair.weights, form="iterated").T_target_source
    again = point_to_distribution(source, target, metric_at(distance, T, *sides), pair.weights, initial=T)
    assert_close(again.T_target_source, T, rtol=0, atol=1e-8)


@pytest.mark.parametrize("distance", DISTANCES)
def test_where_the_iterated_form_does_not_converge_it_stays_near_the_plain_answer(distance):
    pair = matched_pair(40, points=64, noise=0.05, seed=5)  # of which some are nearly round
    source, target, *sides = arrays(distance, pair)
    alignment = align(distance, source, target, *sides)
    plain = point_to_plane(source, target, pair.normals) if distance == "symmetric" else point_to_point(source, target)
    lost = ~alignment.converged
    assert_close(alignment.T_target_source[lost], plain.T_target_source[lost], rtol=0, atol=1e-6)


@pytest.mark.parametrize("distance", DISTANCES)
def test_the_fixed_form_takes_the_metric_where_the_search_starts(distance):
    pair = scattered_pair(points=40, seed=1)
    source, target, *sides = arrays(distance, pair)
    initial = se3.exp(torch.full((6,), 0.05, dtype=torch.float64)) @ pair.T_target_source
    T = align(distance, source, target, *sides, form="fixed", initial=initial).T_target_source
    given = point_to_distribution(source, target, metric_at(distance, initial, *sides), initial=initial)
    assert_close(T, given.T_target_source, rtol=0, atol=1e-10)


@pytest.mark.parametrize("distance", DISTANCES)
def test_full_and_iterated_agree_without_noise_and_differ_with_it(distance):
    for noise, differ in ((0.0, False), (0.1, True)):
        pair = scattered_pair(points=40, noise=noise, seed=1)
        inputs = arrays(distance, pair)
        full, iterated = (align(distance, *inputs, form=form) for form in ("full", "iterated"))
        assert full.converged
        assert iterated.converged
        difference = (full.T_target_source - iterated.T_target_source).abs().max()
        assert difference > 1e-4 if differ else difference < 1e-8


@pytest.mark.parametrize("distance", DISTANCES)
def test_the_gradient_of_a_metric_held_still_is_wrong_where_it_is_recomputed(distance):
    pair = scattered_pair(points=40, noise=0.1, seed=1)
    source, target, *sides = arrays(distance, pair)
    (source, target) = leaves(source, target)
    T = align(distance, source, target, *sides, form="iterated").T_target_source
    held = metric_at(distance, T.detach(), *sides)
    T_held = point_to_distribution(source, target, held, initial=T).T_target_source
    assert_close(T_held, T, rtol=0, atol=1e-7)
    G = torch.randn(4, 4, generator=generator(3), dtype=torch.float64)
    for tensor in (source, target):
        ours, naive = (torch.autograd.grad((G * pose).sum(), tensor, retain_graph=True)[0] for pose in (T, T_held))
        assert (naive - ours).norm() / ours.norm() > 0.01


@pytest.mark.parametrize("form", ["full", "iterated"])
def test_flipping_any_normals_leaves_the_symmetric_pose_as_it_is(form):
    pair = scattered_pair(points=40, seed=1)
    source, target, *normals = arrays("symmetric", pair)
    before = align("symmetric", source, target, *normals, form=form)
    signs = torch.where(torch.rand(2, 40, 1, generator=generator(6)) < 0.5, -1.0, 1.0).double()
    flipped = [sign * normal for sign, normal in zip(signs, normals, strict=True)]
    after = align("symmetric", source, target, *flipped, form=form)
    assert_close(after.T_target_source, before.T_target_source, rtol=0, atol=1e-10)
    assert_close(after.energy, before.energy)


def exact_arrays(distance: str, pair: MatchedPair) -> tuple[Tensor, ...]:
    source_normals = se3.rotate(se3.inverse(pair.T_target_source), pair.normals)
    if distance == "symmetric":
        return pair.source, pair.target, source_normals, pair.normals
    return pair.source, pair.target, thin(source_normals, 0.01), thin(pair.normals, 0.01)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("form", ["full", "iterated"])
def test_any_rotation_is_recovered_without_a_start(distance, form):
    pair = matched_pair(20, points=256, noise=0.0, seed=0)
    alignment = align(distance, *exact_arrays(distance, pair), form=form)
    assert alignment.converged.all()
    assert_close(alignment.T_target_source, pair.T_target_source, rtol=0, atol=1e-9)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("form", ["full", "iterated"])
def test_under_noise_any_rotation_converges_without_a_start(distance, form):
    pair = matched_pair(20, points=256, noise=0.02, seed=0)
    alignment = align(distance, *exact_arrays(distance, pair), form=form)
    assert alignment.converged.all()
    chord = (alignment.R - pair.T_target_source[:, :3, :3]).norm(dim=(1, 2)) / 8**0.5
    assert torch.rad2deg(2 * torch.asin(chord)).median() < 3
