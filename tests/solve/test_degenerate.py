"""Clouds that leave directions open: those stay at `initial`, and nothing becomes infinite."""

from __future__ import annotations

import math

import pytest
import roma
import torch
from torch import Tensor
from torch.testing import assert_close

import p2plane
from p2plane import Alignment, point_to_plane, point_to_point, se3, so3
from tests.clouds import DISTANCES, MatchedPair, align, arrays, matched_pair

Z = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)


def uniform(*shape: int, seed: int) -> Tensor:
    """Numbers in [-1, 1)."""
    return 2 * torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 1


def opposites(points: Tensor) -> Tensor:
    """The points and their mirror images, so that the centroid is the centre of the shape."""
    return torch.cat([points, -points])


def plane() -> tuple[Tensor, Tensor]:
    points = uniform(40, 3, seed=0) * torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)
    return points, Z.expand(40, 3)


def line() -> tuple[Tensor, Tensor]:
    """Points on the z axis, normals all around it."""
    points, normals = cylinder()
    return points * Z, normals


def sphere() -> tuple[Tensor, Tensor]:
    normals = opposites(torch.nn.functional.normalize(uniform(20, 3, seed=1), dim=-1))
    return normals, normals


def cylinder() -> tuple[Tensor, Tensor]:
    angle, height = math.pi * uniform(20, seed=2), uniform(20, seed=3)
    normals = torch.stack([angle.cos(), angle.sin(), torch.zeros_like(angle)], dim=-1)
    return opposites(normals + height[:, None] * Z), opposites(normals)


def capped_cylinder() -> tuple[Tensor, Tensor]:
    points, normals = cylinder()
    cap = 0.7 * uniform(10, 3, seed=4) * (1 - Z) + Z
    return torch.cat([points, opposites(cap)]), torch.cat([normals, opposites(Z.expand(10, 3))])


def coincident() -> tuple[Tensor, Tensor]:
    return Z.expand(40, 3), sphere()[1]


def one_point() -> tuple[Tensor, Tensor]:
    return Z[None], Z[None]


def no_point() -> tuple[Tensor, Tensor]:
    return Z.new_zeros(0, 3), Z.new_zeros(0, 3)


SHAPES = {
    shape.__name__: shape for shape in (plane, line, sphere, cylinder, capped_cylinder, coincident, one_point, no_point)
}
DETERMINED = {  # of the six directions, by planes and by points
    "plane": (3, 6),
    "line": (4, 5),
    "sphere": (3, 6),
    "cylinder": (4, 6),
    "capped_cylinder": (5, 6),
    "coincident": (3, 3),
    "one_point": (1, 3),
    "no_point": (0, 0),
}


def pair_of(shape: str, seed: int = 5, noise: float = 0.0) -> MatchedPair:
    """The shape, and the shape moved somewhere else, with noise along the normals."""
    points, normals = SHAPES[shape]()
    T = se3.random(generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    target = se3.apply(T, points + noise * uniform(len(points), 1, seed=6) * normals)
    return MatchedPair(points, target, se3.rotate(T, normals), torch.ones(len(points), dtype=torch.float64), T)


def gradients(distance: str, pair: MatchedPair, **settings: object) -> tuple[Alignment, tuple[Tensor, ...]]:
    inputs = [tensor.clone().requires_grad_() for tensor in (*arrays(distance, pair), pair.weights)]
    alignment = getattr(p2plane, distance)(*inputs, **settings)
    upstream = uniform(*alignment.T_target_source.shape, seed=7)
    return alignment, torch.autograd.grad((alignment.T_target_source * upstream).sum(), inputs)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_pose_gradients_and_uncertainty_are_finite_and_small(distance, shape, noise):
    alignment, by_inputs = gradients(distance, pair_of(shape, noise=noise))
    T = alignment.T_target_source
    assert_close(T[:3, :3] @ T[:3, :3].mT, torch.eye(3, dtype=torch.float64))
    assert T.abs().max() < 10
    assert all(gradient.isfinite().all() for gradient in by_inputs)
    assert all(gradient.abs().max() < 100 for gradient in by_inputs if gradient.numel())
    for result in (alignment.energy, alignment.sigma, alignment.residuals, alignment.information, alignment.covariance):
        assert result.isfinite().all()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_count_of_determined_directions_is_right(shape):
    pair = pair_of(shape)
    by_planes, by_points = DETERMINED[shape]
    for initial in (None, pair.T_target_source):
        assert align("point_to_plane", pair, initial=initial).observability.determined == by_planes
        assert align("point_to_point", pair, initial=initial).observability.determined == by_points


@pytest.mark.parametrize("shape", ["plane", "line", "sphere", "cylinder", "capped_cylinder", "coincident"])
def test_what_is_determined_is_found(shape):
    pair = pair_of(shape)
    for distance in ("point_to_plane", "point_to_point"):
        alignment = align(distance, pair)
        assert alignment.converged
        assert alignment.energy < 1e-10


def motion(*twist: float) -> Tensor:
    return se3.exp(torch.tensor(twist, dtype=torch.float64))


UP, DOWN = motion(0, 0, 0, 0, 0, 1), motion(0, 0, 0, 0, 0, -1)
UNSEEN_AND_SEEN = {  # a motion that leaves every distance as it is, and one that does not
    "plane": (motion(0, 0, 0.8, 0.4, -0.3, 0), motion(0, 0, 0, 0, 0, 0.2)),
    "line": (motion(0, 0, 1.2, 0, 0, 0.7), motion(0, 0, 0, 0.1, -0.2, 0)),
    "cylinder": (motion(0, 0, 0, 0, 0, 0.7), motion(0, 0, 0, 0.1, -0.2, 0)),
    "coincident": (UP @ motion(0.5, -0.3, 0.4, 0, 0, 0) @ DOWN, motion(0, 0, 0, 0.1, -0.2, 0.3)),
    "one_point": (UP @ motion(0.5, -0.3, 0.4, 0.6, -0.7, 0) @ DOWN, motion(0, 0, 0, 0, 0, 0.2)),
}


@pytest.mark.parametrize("distance", ["point_to_plane", "symmetric_point_to_plane"])
@pytest.mark.parametrize("shape", UNSEEN_AND_SEEN)
@pytest.mark.parametrize("away", [0.0, 100.0])
def test_what_is_not_determined_stays_at_initial(distance, shape, away):
    points, normals = SHAPES[shape]()
    unseen, seen = UNSEEN_AND_SEEN[shape]
    T_source, T_target = se3.random(2, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    T_source[:3, 3] *= away
    T_target[:3, 3] *= away

    def in_these_frames(T: Tensor) -> Tensor:
        return T_target @ T @ se3.inverse(T_source)

    source, target, weights = se3.apply(T_source, points), se3.apply(T_target, points), torch.ones_like(points[:, 0])
    pair = MatchedPair(source, target, se3.rotate(T_target, normals), weights, in_these_frames(unseen))
    stays = align(distance, pair, initial=in_these_frames(unseen))
    assert_close(stays.T_target_source, in_these_frames(unseen), rtol=0, atol=1e-9)
    returns = align(distance, pair, initial=in_these_frames(seen @ unseen))
    assert returns.converged
    assert_close(returns.T_target_source, in_these_frames(unseen), rtol=0, atol=1e-9)


def test_a_plane_returns_from_a_tilt_to_a_pose_that_fits():
    pair = pair_of("plane")
    alignment = align("point_to_plane", pair, initial=motion(0.3, -0.2, 0.5, 0.1, 0.2, 0.3) @ pair.T_target_source)
    assert alignment.converged
    assert alignment.energy < 1e-16


# Measured at the centroid: turns about the target's axis e (the moved z), and moves along e and across it.
OPEN = {
    "plane": ("turn along", "move across"),
    "line": ("turn along", "move along"),
    "sphere": ("turn along", "turn across"),
    "cylinder": ("turn along", "move along"),
    "capped_cylinder": ("turn along",),
}


@pytest.mark.parametrize(("shape", "noise"), [*((shape, 0.0) for shape in OPEN), ("plane", 0.05)])
def test_no_gradient_flows_along_what_is_not_determined(shape, noise):
    pair = pair_of(shape, noise=noise)
    inputs = [tensor.clone().requires_grad_() for tensor in pair[:4]]
    alignment = point_to_plane(*inputs, initial=pair.T_target_source)
    T = alignment.T_target_source
    along = pair.T_target_source[:3, 2]
    across = torch.linalg.cross(along, Z)
    turned = T[:3, :3] @ T[:3, :3].mT.detach()
    turn = torch.stack([turned[2, 1], turned[0, 2], turned[1, 0]])  # to the first order, the rotation vector
    moved = T[:3, :3] @ pair.source.mean(0) + T[:3, 3]
    rates = {
        f"{kind} {name}": sum(g.abs().sum() for g in torch.autograd.grad(vector @ axis, inputs, retain_graph=True))
        for kind, vector in (("turn", turn), ("move", moved))
        for name, axis in (("along", along), ("across", across))
    }
    assert all(rates[direction] < 1e-9 for direction in OPEN[shape])
    assert all(rate > 1e-3 for direction, rate in rates.items() if direction not in OPEN[shape])


def nothing() -> dict[str, tuple[MatchedPair, dict[str, Tensor]]]:
    pair = matched_pair(seed=9)
    return {
        "weights of zero": (pair._replace(weights=torch.zeros_like(pair.weights)), {}),
        "all masked": (pair, {"mask": torch.zeros(64, dtype=torch.bool)}),
        "no point": (pair_of("no_point"), {}),
    }


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_two_distinct_normals_leave_one_direction_open_in_float32(noise):
    """As in a corridor, or where a network has picked a few points of two faces of a box."""
    source = uniform(2, 32, 3, seed=11)
    normals = torch.tensor([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0]], dtype=torch.float64).repeat(16, 1).expand(2, 32, 3)
    T = se3.exp(0.3 * uniform(2, 6, seed=12))
    target = se3.apply(T, source) + noise * uniform(2, 32, 3, seed=13)
    inputs = [tensor.float().requires_grad_() for tensor in (source, target, normals)]
    alignment = point_to_plane(*inputs)
    assert alignment.observability.determined.tolist() == [5, 5]
    assert alignment.residuals.abs().max() <= max(1e-5, 2 * noise)
    gradients = torch.autograd.grad(alignment.T_target_source.square().sum(), inputs)
    assert all(gradient.isfinite().all() for gradient in (alignment.T_target_source, *gradients))
    along = gradients[1].sum(1)[:, 2].abs()  # the open direction is z, and moving the target along it moves nothing
    assert (along <= 1e-5).all()
    assert gradients[1].abs().max() > 1e-4


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("case", nothing())
def test_a_pair_that_says_nothing_stays_at_initial_and_is_not_converged(distance, case):
    pair, settings = nothing()[case]
    initial = motion(0.3, -0.2, 0.5, 1, 2, 3)
    alignment, by_inputs = gradients(distance, pair, initial=initial, **settings)
    assert not alignment.converged
    assert alignment.observability.determined == 0
    assert_close(alignment.T_target_source, initial, rtol=0, atol=1e-12)
    assert all((gradient == 0).all() for gradient in by_inputs)
    assert (alignment.energy, alignment.covariance.abs().sum(), alignment.information.abs().sum()) == (0, 0, 0)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("shape", ["plane", "sphere", "coincident", "weights of zero"])
def test_a_degenerate_pair_leaves_its_neighbours_alone(distance, shape):
    good = matched_pair(2, points=40, noise=0.002, seed=8)
    bad = matched_pair(points=40, seed=9)._replace(weights=torch.zeros(40).double()) if " " in shape else pair_of(shape)
    mixed = MatchedPair(*(torch.stack([g[0], b, g[1]]) for g, b in zip(good, bad, strict=True)))
    together, by_mixed = gradients(distance, mixed)
    inputs = [tensor.clone().requires_grad_() for tensor in (*arrays(distance, good), good.weights)]
    alone = getattr(p2plane, distance)(*inputs)
    upstream = uniform(3, 4, 4, seed=7)[[0, 2]]  # what the good pairs get in `gradients`
    by_good = torch.autograd.grad((alone.T_target_source * upstream).sum(), inputs)
    assert together.converged[[0, 2]].all()
    assert_close(together.T_target_source[[0, 2]], alone.T_target_source, rtol=0, atol=1e-10)
    assert_close(together.covariance[[0, 2]], alone.covariance, rtol=1e-6, atol=1e-12)
    for mixed_rows, good_rows in zip(by_mixed, by_good, strict=True):
        assert_close(mixed_rows[[0, 2]], good_rows, rtol=1e-6, atol=1e-9)


def test_point_to_point_has_the_pose_and_the_gradient_of_roma_on_generic_clouds():
    pair = matched_pair(5, noise=0.1, seed=10)
    upstream = uniform(5, 3, 4, seed=11)
    by_ours, by_roma = [], []
    for results, solve in ((by_ours, point_to_point), (by_roma, roma.rigid_points_registration)):
        inputs = [tensor.clone().requires_grad_() for tensor in (pair.source, pair.target, pair.weights)]
        found = solve(*inputs)
        R, t = (found.R, found.t) if isinstance(found, Alignment) else found
        results += [R, t, *torch.autograd.grad((torch.cat([R, t[..., None]], -1) * upstream).sum(), inputs)]
    for ours, theirs in zip(by_ours, by_roma, strict=True):
        assert_close(ours, theirs, rtol=0, atol=1e-10)


AXES = opposites(torch.eye(3, dtype=torch.float64))
MIRROR = torch.diag(torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64))
HARD_FOR_AN_SVD = {  # source and target
    "isotropic": (AXES, AXES @ so3.exp(Z).mT),
    "isotropic and mirrored": (AXES, -AXES),
    "mirrored": (matched_pair(seed=12).source, matched_pair(seed=12).source @ MIRROR),
    "flat": (plane()[0], plane()[0]),
    "collinear": (line()[0], line()[0] @ so3.exp(2 * AXES[0]).mT),
    "collinear and reversed": (line()[0], -line()[0]),
    "coincident": (coincident()[0], coincident()[0]),
    "onto one point": (AXES, torch.zeros_like(AXES)),
    "from one point": (torch.zeros_like(AXES), AXES),
}


@pytest.mark.parametrize("case", HARD_FOR_AN_SVD)
def test_point_to_point_has_finite_gradients_where_singular_values_meet(case):
    source, target = (points.clone().requires_grad_() for points in HARD_FOR_AN_SVD[case])
    weights = torch.ones(len(source), dtype=torch.float64, requires_grad=True)
    alignment = point_to_point(source, target, weights)
    upstream = uniform(4, 4, seed=13)
    by_inputs = torch.autograd.grad((alignment.T_target_source * upstream).sum(), (source, target, weights))
    assert_close(torch.linalg.det(alignment.R), torch.tensor(1.0, dtype=torch.float64))
    assert all(gradient.isfinite().all() and gradient.abs().max() < 100 for gradient in by_inputs)


def test_point_to_point_gradients_are_right_on_isotropic_clouds():
    # Equal singular values, where the derivative of the decomposition itself does not exist.
    source, target = (points.clone().requires_grad_() for points in HARD_FOR_AN_SVD["isotropic"])
    assert torch.autograd.gradcheck(lambda x, y: point_to_point(x, y).T_target_source, (source, target))


def test_rounding_of_matrices_in_float32_opens_no_way_to_infinity():
    """All points matched with one: of the six eigenvalues three are zero, up to rounding of either sign."""
    source = uniform(64, 24, 3, seed=0).float()
    normals = torch.nn.functional.normalize(uniform(64, 1, 3, seed=1).float(), dim=-1).expand(64, 24, 3)
    target = uniform(64, 1, 3, seed=2).float().expand(64, 24, 3)
    matrices = normals[..., :, None] * normals[..., None, :]
    found = p2plane.point_to_distribution(source, target, matrices)
    expected = p2plane.point_to_distribution(*(each.double() for each in (source, target, matrices)))
    assert found.T_target_source.abs().max() < 5
    assert (found.energy >= 0).all()
    assert_close(found.energy, expected.energy.float(), rtol=1e-3, atol=1e-5)
