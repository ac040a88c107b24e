"""How sure the pose is: covariance, information and noise; and directions that are known beforehand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from p2plane import Alignment, point_to_plane, point_to_point, se3, so3
from tests.clouds import DISTANCES, MatchedPair, align, matched_pair

PAIR = matched_pair(points=200, seed=8)
DRAWS, NOISE = 2000, 0.01


def noise_draws(*shape: int) -> Tensor:
    """Noise for many draws of one cloud, of variance ``NOISE^2 / w``."""
    draws = torch.randn(DRAWS, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return NOISE * draws / PAIR.weights.sqrt()[:, None]


def alignments(distance: str) -> Alignment:
    """One surface with 2,000 draws of noise: along the normals for planes, every way for points."""
    if distance == "point_to_plane":
        return point_to_plane(PAIR.source, PAIR.target + noise_draws(200, 1) * PAIR.normals, PAIR.normals, PAIR.weights)
    return point_to_point(PAIR.source, PAIR.target + noise_draws(200, 3), PAIR.weights)


@pytest.mark.parametrize("distance", ["point_to_plane", "point_to_point"])
def test_covariance_predicts_the_scatter_and_sigma_the_noise(distance):
    found = alignments(distance)
    errors = se3.log(found.T_target_source @ se3.inverse(PAIR.T_target_source))
    scatter = errors.mT @ errors / DRAWS
    # In the coordinates in which the prediction is the identity, all directions compare.
    root = torch.linalg.cholesky(found.covariance.mean(0))
    whitened = torch.linalg.solve_triangular(root, scatter, upper=False)
    whitened = torch.linalg.solve_triangular(root, whitened.mT, upper=False)
    assert_close(whitened, torch.eye(6, dtype=torch.float64), rtol=0, atol=0.15)
    assert found.sigma.square().mean().sqrt().item() == pytest.approx(NOISE, rel=0.02)
    assert found.sigma.std() < 0.1 * NOISE


@pytest.mark.parametrize("distance", DISTANCES)
def test_information_is_the_inverse_of_covariance_where_all_is_determined(distance):
    alignment = align(distance, matched_pair(3, noise=0.01, seed=8))
    assert (alignment.observability.determined == 6).all()
    product = alignment.information @ alignment.covariance
    assert_close(product, torch.eye(6, dtype=torch.float64).expand(3, 6, 6), rtol=0, atol=1e-9)


@pytest.mark.parametrize("unit", [1e-100, 1e100])
def test_the_unit_of_length_may_be_any(unit):
    pair = matched_pair(noise=0.01, seed=8)
    one = align("point_to_plane", pair)
    other = align("point_to_plane", pair._replace(source=pair.source * unit, target=pair.target * unit))
    units = torch.tensor([1.0] * 3 + [unit] * 3, dtype=torch.float64)
    assert_close(units[:, None] * other.information * units, one.information, rtol=1e-6, atol=1e-3)
    assert_close(other.covariance / units / units[:, None], one.covariance, rtol=1e-6, atol=1e-12)


def adjoint(T: Tensor) -> Tensor:
    """(6, 6) what `T` does to a twist (omega, v): ``T exp(twist) = exp(adjoint(T) twist) T``, to the first order."""
    R, t = T[:3, :3], T[:3, 3]
    return torch.cat([torch.cat([R, torch.zeros_like(R)], 1), torch.cat([so3.hat(t) @ R, R], 1)])


@pytest.mark.parametrize("distance", ["point_to_plane", "point_to_point"])
def test_covariance_and_information_move_with_the_target_and_not_with_the_source(distance):
    pair = matched_pair(noise=0.01, seed=8)
    T_source, T_target = se3.random(2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    moved = MatchedPair(
        se3.apply(T_source, pair.source),
        se3.apply(T_target, pair.target),
        se3.rotate(T_target, pair.normals),
        pair.weights,
        pair.T_target_source,
    )
    before, after = align(distance, pair), align(distance, moved)
    Ad = adjoint(T_target)
    assert_close(after.covariance, Ad @ before.covariance @ Ad.mT, rtol=1e-7, atol=1e-12)
    assert_close(Ad.mT @ after.information @ Ad, before.information, rtol=1e-7, atol=1e-2)
    assert_close(after.sigma, before.sigma)


def test_observability_names_the_directions_and_where_they_turn():
    alignment = align("point_to_plane", matched_pair(noise=0.01, seed=8))
    seen = alignment.observability
    assert (seen.eigenvalues.diff() >= 0).all()
    assert_close(seen.directions @ seen.directions.mT, torch.eye(6, dtype=torch.float64))
    source, _, normals, weights, _ = matched_pair(noise=0.01, seed=8)
    share = weights / weights.sum()
    centroid = share @ source
    assert_close(seen.center, se3.apply(alignment.T_target_source, centroid[None])[0])
    assert_close(seen.scale, (share @ (source - centroid).square().sum(-1)).sqrt())
    # An eigenvalue is the mean squared height, in units of the scale, that a unit of its motion causes.
    arms = (se3.apply(alignment.T_target_source, source) - seen.center) / seen.scale
    jacobian = torch.cat([torch.linalg.cross(arms, normals), normals], dim=-1)
    heights = jacobian @ seen.directions.mT
    assert_close(share @ heights.square(), seen.eigenvalues)


def test_sigma_without_noise_is_rounding_and_the_covariance_is_not_negative():
    for dtype, rounding in ((torch.float64, 1e-14), (torch.float32, 1e-5)):
        alignment = align("point_to_plane", MatchedPair(*(tensor.to(dtype) for tensor in matched_pair(seed=8))))
        assert 0 < alignment.sigma < rounding
        assert torch.linalg.eigvalsh(alignment.covariance.double()).min() > -1e-15


def test_sigma_is_the_size_of_the_cloud_where_nothing_is_left_to_estimate_it():
    pair = matched_pair(points=6, seed=8)
    alignment = align("point_to_plane", pair)
    assert_close(alignment.sigma, alignment.observability.scale)


def test_a_plane_has_no_covariance_and_no_information_along_itself():
    points = PAIR.source * torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)
    normals = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64).expand_as(points)
    noise = noise_draws(200, 1)[0] * normals
    alignment = point_to_plane(points, points + noise, normals)
    eigenvalues = torch.linalg.eigvalsh(alignment.covariance)
    assert eigenvalues[:3].abs().max() < 1e-12 * eigenvalues[5]
    assert eigenvalues[3] > 1e-3 * eigenvalues[5]
    within = torch.eye(6, dtype=torch.float64)[[2, 3, 4]]  # turns about z, moves along x and y
    assert (alignment.information @ within.mT).abs().max() < 1e-9 * alignment.information.abs().max()


ROTATIONS, TRANSLATIONS = ("rx", "ry", "rz"), ("tx", "ty", "tz")
PLANAR, GRAVITY = ("rx", "ry", "tz"), ("rx", "ry")
NAMES = (*ROTATIONS, *TRANSLATIONS)


def changes(T: Tensor, T_initial: Tensor) -> Tensor:
    """(6,) the turn about the target's axes and the change of t that lead from one transform to another."""
    return torch.cat([so3.log(T[:3, :3] @ T_initial[:3, :3].mT), T[:3, 3] - T_initial[:3, 3]])


def held_pair(hold: tuple[str, ...], initial: Tensor, angle: float = 2.0, noise: float = 0.0) -> MatchedPair:
    """A pair whose true motion differs from `initial` only in what is not held."""
    change = torch.tensor([angle, angle, angle, 0.5, -0.8, 0.3], dtype=torch.float64)
    change[[NAMES.index(name) for name in hold]] = 0
    if "rx" not in hold:
        change[:3] *= 1 / math.sqrt(3)
    R, t = so3.exp(change[:3]) @ initial[:3, :3], change[3:] + initial[:3, 3]
    T = se3.from_rotation_translation(R, t)
    pair = matched_pair(noise=noise, seed=8)
    T_moved = T @ se3.inverse(pair.T_target_source)
    return pair._replace(
        target=se3.apply(T_moved, pair.target), normals=se3.rotate(T_moved, pair.normals), T_target_source=T
    )


INITIALS = {
    "identity": torch.eye(4, dtype=torch.float64),
    "another": se3.random(generator=torch.Generator().manual_seed(3), dtype=torch.float64),
}


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("hold", [PLANAR, GRAVITY, TRANSLATIONS, ROTATIONS], ids="-".join)
@pytest.mark.parametrize("initial", INITIALS)
def test_what_is_held_stays_at_initial_and_the_rest_is_found(distance, hold, initial):
    T_initial = INITIALS[initial]
    pair = held_pair(hold, T_initial)
    found = align(distance, pair, hold=hold, initial=T_initial)
    assert found.converged
    assert_close(found.T_target_source, pair.T_target_source, rtol=0, atol=1e-9)
    noisy = align(distance, held_pair(hold, T_initial, noise=0.01), hold=hold, initial=T_initial)
    assert noisy.converged
    held = [NAMES.index(name) for name in hold]
    assert_close(changes(noisy.T_target_source, T_initial)[held], torch.zeros(len(held)).double(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("degrees", [-170, -90, 90, 170, 179.9])
def test_planar_motion_is_found_at_any_yaw(degrees):
    pair = held_pair(PLANAR, INITIALS["identity"], angle=math.radians(degrees))
    found = align("point_to_plane", pair, hold=PLANAR)
    assert found.converged
    assert_close(found.T_target_source, pair.T_target_source, rtol=0, atol=1e-9)


@pytest.mark.parametrize("hold", [PLANAR, GRAVITY, TRANSLATIONS, ROTATIONS, ("tx",), ("rx", "rz", "ty")], ids="-".join)
def test_no_move_along_a_free_direction_lowers_the_energy(hold):
    pair = held_pair(hold, INITIALS["another"], noise=0.05)
    found = align("point_to_plane", pair, hold=hold, initial=INITIALS["another"])
    R, t = found.R, found.t

    def energy(change: Tensor) -> Tensor:
        T = se3.from_rotation_translation(so3.exp(change[:3]) @ R, t + change[3:])
        heights = ((se3.apply(T, pair.source) - pair.target) * pair.normals).sum(-1)
        return (pair.weights * heights.square()).sum()

    slope = torch.func.grad(energy)(torch.zeros(6, dtype=torch.float64))
    free = [i for i, name in enumerate(NAMES) if name not in hold]
    held = [i for i, name in enumerate(NAMES) if name in hold]
    assert found.converged
    assert slope[free].abs().max() < 1e-9
    assert slope[held].abs().max() > 1e-3  # held against the pull of the data


@pytest.mark.parametrize("hold", [PLANAR, GRAVITY, TRANSLATIONS, ROTATIONS], ids="-".join)
def test_covariance_is_zero_along_held_directions(hold):
    found = align(
        "point_to_plane", held_pair(hold, INITIALS["another"], noise=0.01), hold=hold, initial=INITIALS["another"]
    )
    to_changes = torch.eye(6, dtype=torch.float64)  # of R and t: t changes by omega x t + v
    to_changes[3:, :3] = -so3.hat(found.t)
    covariance = to_changes @ found.covariance @ to_changes.mT
    held = [NAMES.index(name) for name in hold]
    free = [i for i in range(6) if i not in held]
    assert covariance[held].abs().max() < 1e-18
    assert torch.linalg.eigvalsh(covariance[free][:, free]).min() > 1e-8


def test_covariance_with_held_directions_predicts_the_scatter():
    pair = held_pair(PLANAR, INITIALS["identity"])
    noise = NOISE * torch.randn(DRAWS, 64, 1, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    found = point_to_plane(pair.source, pair.target + noise * pair.normals, pair.normals, hold=PLANAR)
    errors = se3.log(found.T_target_source @ se3.inverse(pair.T_target_source))
    free = [2, 3, 4]
    ratio = errors[:, free].square().mean(0) / found.covariance.mean(0).diagonal()[free]
    assert_close(ratio, torch.ones(3, dtype=torch.float64), rtol=0, atol=0.15)


def test_one_name_may_stand_without_a_sequence():
    pair = held_pair(("tz",), INITIALS["identity"], noise=0.01)
    one, many = (align("point_to_plane", pair, hold=hold).T_target_source for hold in ("tz", ("tz",)))
    assert torch.equal(one, many)
    assert one[2, 3] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("distance", ["point_to_plane", "point_to_point", "plane_to_plane"])
def test_a_pose_held_altogether_is_initial(distance):
    T_initial = INITIALS["another"]
    found = align(distance, matched_pair(noise=0.01, seed=8), hold=NAMES, initial=T_initial)
    assert_close(found.T_target_source, T_initial, rtol=0, atol=1e-12)
    assert found.energy > 1
    assert found.covariance.abs().max() == 0
