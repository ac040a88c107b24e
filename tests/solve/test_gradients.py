"""The gradient of the pose is exact: of the first order, of the second, forward and backward, with little saved."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from p2plane import point_to_distribution, point_to_plane, point_to_point, se3
from tests.clouds import MatchedPair, matched_pair

# The first use of forward mode makes PyTorch 2.13 script functions of its own, and warn about that.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

NAMES = ("source", "target", "normals", "weights")


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def near_the_truth(pair: MatchedPair, seed: int = 3) -> Tensor:
    twist = 0.05 * torch.randn(*pair.source.shape[:-2], 6, generator=generator(seed), dtype=torch.float64)
    return se3.exp(twist) @ pair.T_target_source


def leaves(*tensors: Tensor) -> list[Tensor]:
    return [tensor.detach().clone().requires_grad_() for tensor in tensors]


def cast(pair: MatchedPair, dtype: torch.dtype) -> MatchedPair:
    return MatchedPair(*(tensor.to(dtype) for tensor in pair))


def gradients(pair: MatchedPair, function=point_to_plane, **options) -> dict[str, Tensor]:
    """Gradients of a fixed random linear function of the pose."""
    inputs = leaves(*pair[:4])
    T = function(*inputs, **options).T_target_source
    G = torch.randn(4, 4, generator=generator(9), dtype=torch.float64).to(T.dtype)
    return dict(zip(NAMES, torch.autograd.grad((G * T).sum(), inputs), strict=True))


def unrolled_gradients(pair: MatchedPair, initial: Tensor) -> dict[str, Tensor]:
    return gradients(pair, initial=initial, solver="accumulate", gradient="unrolled", max_iterations=60)


def relative_error(value: Tensor, reference: Tensor) -> float:
    return ((value.double() - reference).norm() / reference.norm()).item()


def tiny(*batch: int) -> tuple[list[Tensor], Tensor]:
    """Leaves (source, target, normals, weights) of pairs small enough for finite differences, and a start near them.

    The normals point anywhere: such pairs determine an affine map, which spares the search its many starts.
    """
    pair = matched_pair(*batch, points=12, noise=0.02, seed=1)
    normals = torch.randn(pair.normals.shape, generator=generator(1), dtype=torch.float64)
    normals = normals / normals.norm(dim=-1, keepdim=True)
    return leaves(pair.source, pair.target, normals, pair.weights), near_the_truth(pair)


def precisions_of(normals: Tensor) -> Tensor:
    """Flat, positive definite matrices, not quite symmetric: what is not must not count."""
    skew = 0.1 * torch.randn(3, 3, generator=generator(5), dtype=normals.dtype)
    return normals[..., :, None] * normals[..., None, :] + 0.2 * torch.eye(3, dtype=normals.dtype) + skew - skew.mT


@pytest.mark.parametrize("noise", [0.01, 0.1, 0.3])
def test_the_exact_gradient_is_that_of_the_converged_unrolled_iterations(noise):
    pair = matched_pair(2, points=256, noise=noise, seed=1)
    initial = near_the_truth(pair)
    reference = unrolled_gradients(pair, initial)
    exact = gradients(pair, initial=initial)
    for name in NAMES:
        assert relative_error(exact[name], reference[name]) <= 1e-9, name


@pytest.mark.parametrize("noise", [0.01, 0.1, 0.3])
def test_the_exact_gradient_in_float32_is_that_of_the_unrolled_iterations_in_float64(noise):
    pair = cast(matched_pair(2, points=256, noise=noise, seed=1), torch.float32)
    initial = near_the_truth(cast(pair, torch.float64))
    reference = unrolled_gradients(cast(pair, torch.float64), initial)
    exact = gradients(pair, initial=initial)
    for name in NAMES:
        assert exact[name].dtype == torch.float32
        assert relative_error(exact[name], reference[name]) <= 1e-4, name


def test_without_noise_the_gradients_to_normals_and_weights_vanish():
    pair = matched_pair(2, points=256, noise=0.0, seed=1)
    initial = near_the_truth(pair)
    reference = unrolled_gradients(pair, initial)
    exact = gradients(pair, initial=initial)
    for name in ("source", "target"):
        assert relative_error(exact[name], reference[name]) <= 1e-9, name
    for name in ("normals", "weights"):
        assert exact[name].abs().max() <= 1e-10, name


def test_the_accumulated_answer_has_the_exact_gradient_too():
    pair = matched_pair(2, points=256, noise=0.1, seed=1)
    initial = near_the_truth(pair)
    reference = unrolled_gradients(pair, initial)
    exact = gradients(pair, initial=initial, solver="accumulate", max_iterations=60)
    for name in NAMES:
        assert relative_error(exact[name], reference[name]) <= 1e-9, name


@pytest.mark.parametrize("seed", [1, 4])
def test_heavy_noise_and_a_rejected_step_do_not_keep_newton_from_converging(seed):
    pair = matched_pair(2, points=64, noise=0.3, seed=seed)
    alignment = point_to_plane(*pair[:4], initial=near_the_truth(pair))
    assert alignment.converged.all()


CHECKED = {"eps": 1e-6, "atol": 1e-6, "rtol": 1e-6}


def checked_functions(*batch: int):
    (source, target, normals, weights), initial = tiny(*batch)

    def plane(source, target, normals, weights):
        return point_to_plane(source, target, normals, weights, initial=initial).T_target_source

    def point(source, target, weights):
        return point_to_point(source, target, weights).T_target_source

    def distribution(source, target, precisions, weights):
        return point_to_distribution(source, target, precisions, weights, initial=initial).T_target_source

    (precisions,) = leaves(precisions_of(normals))
    return {
        "plane": (plane, (source, target, normals, weights)),
        "point": (point, (source, target, weights)),
        "distribution": (distribution, (source, target, precisions, weights)),
    }


@pytest.mark.parametrize("distance", ["plane", "point", "distribution"])
def test_the_gradient_matches_finite_differences(distance):
    function, inputs = checked_functions()[distance]
    assert gradcheck(function, inputs, **CHECKED)


@pytest.mark.parametrize("distance", ["plane", "point", "distribution"])
def test_the_forward_derivative_matches_finite_differences(distance):
    function, inputs = checked_functions(2)[distance]
    assert gradcheck(function, inputs, check_forward_ad=True, check_backward_ad=False, fast_mode=True, **CHECKED)


@pytest.mark.parametrize("distance", ["plane", "point", "distribution"])
def test_the_second_derivative_matches_finite_differences(distance):
    function, inputs = checked_functions(2)[distance]
    assert gradgradcheck(function, inputs, fast_mode=True, **CHECKED)


@pytest.mark.parametrize("wanted", range(4))
def test_each_input_has_its_gradient_when_it_alone_asks_for_one(wanted):
    inputs, initial = tiny()
    for index, tensor in enumerate(inputs):
        tensor.requires_grad_(index == wanted)

    def pose(*inputs):
        return point_to_plane(*inputs, initial=initial).T_target_source

    assert gradcheck(pose, inputs, check_forward_ad=True, fast_mode=True, **CHECKED)


@pytest.mark.parametrize("hold", [("rx", "ry"), ("rx", "ry", "tz"), ("tx",), ("rx", "ry", "rz"), ("tx", "ty", "tz")])
@pytest.mark.parametrize("distance", ["plane", "point"])
def test_with_held_directions_the_gradient_matches_finite_differences(distance, hold):
    (source, target, normals, weights), initial = tiny()

    def pose(source, target, normals, weights):
        if distance == "plane":
            alignment = point_to_plane(source, target, normals, weights, initial=initial, hold=hold)
        else:
            alignment = point_to_point(source, target, weights, initial=initial, hold=hold)
        assert alignment.converged.all()
        return alignment.T_target_source

    inputs = (source, target, normals.detach().requires_grad_(distance == "plane"), weights)
    assert gradcheck(pose, inputs, check_forward_ad=True, fast_mode=True, **CHECKED)


@pytest.mark.parametrize("absent", [0.0, 1e6, torch.nan, torch.inf])
def test_masked_points_get_zero_gradient_and_leave_the_others_theirs(absent):
    pair = matched_pair(points=24, noise=0.05, seed=2)
    initial = near_the_truth(pair)
    mask = torch.arange(24) < 20
    kept = MatchedPair(*(tensor[:20] for tensor in pair[:4]), pair.T_target_source)
    padded = MatchedPair(
        *(torch.where(mask.view(24, *[1] * (tensor.ndim - 1)), tensor, absent) for tensor in pair[:3]),
        pair.weights,
        pair.T_target_source,
    )
    alone = gradients(kept, initial=initial)
    masked = gradients(padded, initial=initial, mask=mask)
    for name in NAMES:
        assert_close(masked[name][:20], alone[name], rtol=1e-10, atol=1e-12)
        assert (masked[name][20:] == 0).all(), name


def energy(alignment):
    return alignment.energy


def residuals(alignment):
    return alignment.residuals


@pytest.mark.parametrize("of", [energy, residuals])
def test_energy_and_residuals_are_differentiable(of):
    inputs, initial = tiny()
    source, target, normals, weights = inputs
    (precisions,) = leaves(precisions_of(normals))
    plain = {**CHECKED, "check_forward_ad": True, "fast_mode": True}
    assert gradcheck(lambda *inputs: of(point_to_plane(*inputs, initial=initial)), inputs, **plain)
    assert gradcheck(lambda *inputs: of(point_to_point(*inputs)), (source, target, weights), **plain)
    everything = (source, target, precisions, weights)
    assert gradcheck(lambda *inputs: of(point_to_distribution(*inputs, initial=initial)), everything, **plain)


@pytest.mark.parametrize("of", [energy, residuals])
@pytest.mark.parametrize("distance", ["plane", "point"])
def test_absent_rows_of_nan_do_not_reach_the_gradients_of_energy_and_residuals(distance, of):
    pair = matched_pair(points=12, noise=0.05, seed=2)
    mask = torch.arange(12) < 9
    rows = [torch.where(mask[:, None], tensor, torch.nan) for tensor in pair[:3]]
    source, target, normals = leaves(*rows)
    arrays = (source, target, normals) if distance == "plane" else (source, target)
    function = point_to_plane if distance == "plane" else point_to_point
    of(function(*arrays, mask=mask)).sum().backward()
    for tensor in arrays:
        assert tensor.grad.isfinite().all()
        assert (tensor.grad[9:] == 0).all()
        assert (tensor.grad[:9] != 0).any()


def test_residuals_that_are_zero_have_finite_gradients():
    corners = torch.cat([torch.eye(3), -torch.eye(3)]).double()
    (source,) = leaves(corners)
    residuals = point_to_point(source, corners).residuals
    assert (residuals == 0).all()
    residuals.sum().backward()
    assert source.grad.isfinite().all()


def bytes_saved(points: int, iterations: int, gradient: str = "exact", solver: str = "newton") -> float:
    """Bytes that a graph keeps for backward for each of four pairs, beyond the storages of its inputs."""
    pair = matched_pair(4, points=points, noise=0.02, seed=0)
    inputs = leaves(*pair[:4])
    known = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    saved = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage  # kept, so that no address is used twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        alignment = point_to_plane(
            *inputs,
            initial=near_the_truth(pair),
            solver=solver,
            gradient=gradient,
            max_iterations=iterations,
        )
    assert alignment.T_target_source.requires_grad
    return sum(storage.nbytes() for address, storage in saved.items() if address not in known) / 4


@pytest.mark.parametrize("points", [128, 4096])
@pytest.mark.parametrize("iterations", [5, 30])
@pytest.mark.parametrize("solver", ["newton", "accumulate"])
def test_little_is_saved_for_backward_however_many_points_and_iterations(points, iterations, solver):
    assert 0 < bytes_saved(points, iterations, solver=solver) <= 2048


def test_unrolled_iterations_save_more_with_each():
    five, thirty = (bytes_saved(128, iterations, "unrolled", "accumulate") for iterations in (5, 30))
    assert thirty > 4 * five > 4 * 2048


def test_a_pair_that_has_not_converged_says_so():
    pair = matched_pair(points=64, noise=0.01, seed=0)
    far = se3.exp(torch.tensor([0.8, -0.5, 0.4, 1.0, 2.0, -1.0], dtype=torch.float64)) @ pair.T_target_source
    for options in ({"solver": "accumulate", "max_iterations": 1}, {"solver": "newton", "max_iterations": 1}):
        assert not point_to_plane(*pair[:4], initial=far, **options).converged
    assert point_to_plane(*pair[:4], initial=far).converged


@pytest.mark.parametrize("noise", [0.02, 0.3])
def test_a_batch_gives_each_pair_the_gradient_it_has_alone(noise):
    pair = matched_pair(3, points=64, noise=noise, seed=1)
    initial = near_the_truth(pair)
    together = gradients(pair, initial=initial)
    for index in range(3):
        alone = gradients(MatchedPair(*(tensor[index] for tensor in pair)), initial=initial[index])
        for name in NAMES:
            assert_close(together[name][index], alone[name], rtol=1e-8, atol=1e-10)


def test_a_pair_that_cannot_be_solved_leaves_its_neighbours_their_gradient():
    pair = matched_pair(2, points=32, noise=0.05, seed=4)
    initial = near_the_truth(pair)
    flat = MatchedPair(
        pair.source * torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64),
        pair.target * torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64),
        torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64).expand(2, 32, 3),
        pair.weights,
        pair.T_target_source,
    )
    empty = pair._replace(weights=torch.zeros_like(pair.weights))
    mixed = MatchedPair(*(torch.cat(parts) for parts in zip(pair, flat, empty, strict=True)))
    alone = gradients(pair, initial=initial)
    beside = gradients(mixed, initial=torch.cat([initial, torch.eye(4, dtype=torch.float64).expand(4, 4, 4)]))
    for name in NAMES:
        assert_close(beside[name][:2], alone[name], rtol=1e-10, atol=1e-12)
        assert beside[name].isfinite().all(), name
        assert beside[name][2:].abs().max() < 1e3, name
