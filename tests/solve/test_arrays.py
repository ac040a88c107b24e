"""The search on NumPy arrays is the search on tensors: it ends in the same place, after as many steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from p2plane import Alignment, point_to_plane
from p2plane.solve import arrays, sprint
from tests.clouds import MatchedPair, align, matched_pair
from tests.solve import test_degenerate as degenerate

DISTANCES = ["point_to_plane", "point_to_point", "point_to_distribution"]


@contextmanager
def tensors_only() -> Iterator[None]:
    """A context in which nothing becomes an array."""
    with (
        patch("p2plane.solve.quadratic.small", lambda *tensors: tensors),
        patch("p2plane.solve.implicit.small", lambda *tensors: tensors),
    ):
        yield


def solved(distance: str, pair: MatchedPair, **settings: object) -> tuple[Alignment, tuple[Tensor, ...]]:
    """The alignment, and the gradients of a fixed linear function of the pose."""
    inputs = [tensor.detach().clone().requires_grad_() for tensor in pair[:4]]
    alignment = align(distance, pair._replace(**dict(zip(pair._fields, inputs, strict=False))), **settings)
    T = alignment.T_target_source
    G = torch.randn(4, 4, generator=torch.Generator().manual_seed(9), dtype=torch.float64).to(T.dtype)
    used = [
        tensor
        for name, tensor in zip(pair._fields, inputs, strict=False)
        if distance != "point_to_point" or name != "normals"
    ]
    return alignment, torch.autograd.grad((G * T).sum(), used)


def assert_both_agree(distance: str, pair: MatchedPair, **settings: object) -> Alignment:
    """That arrays and tensors lead to the same; the alignment."""
    with tensors_only():
        expected, expected_gradients = solved(distance, pair, **settings)
    found, gradients = solved(distance, pair, **settings)
    atol = 1e-9 if pair.source.dtype == torch.float64 else 1e-5
    assert torch.equal(found.converged, expected.converged)
    assert torch.equal(found.iterations, expected.iterations)
    assert_close(found.T_target_source, expected.T_target_source, rtol=0, atol=atol)
    assert_close(found.energy, expected.energy, rtol=1e-6, atol=1e-12)
    for one, other in zip(gradients, expected_gradients, strict=True):
        assert_close(one, other, rtol=1e-6, atol=atol)
    return found


def scattered(pair: MatchedPair) -> MatchedPair:
    """The pair with normals that point anywhere, which determine it well."""
    normals = torch.randn(pair.normals.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return pair._replace(normals=torch.nn.functional.normalize(normals, dim=-1).to(pair.source))


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("noise", [0.0, 0.02, 0.5])
def test_random_motions_from_all_of_space(distance: str, dtype: torch.dtype, noise: float) -> None:
    pair = scattered(matched_pair(64, points=48, noise=noise, seed=4))
    assert_both_agree(distance, MatchedPair(*(tensor.to(dtype) for tensor in pair)))


@pytest.mark.parametrize("distance", DISTANCES)
def test_ellipsoids_whose_start_is_not_sure(distance: str) -> None:
    assert_both_agree(distance, matched_pair(24, points=40, noise=0.01, seed=5))


@pytest.mark.parametrize("distance", ["point_to_plane", "point_to_point"])
@pytest.mark.parametrize("shape", [shape for shape in degenerate.SHAPES if shape != "no_point"])
def test_clouds_that_leave_directions_open(distance: str, shape: str) -> None:
    assert_both_agree(distance, degenerate.pair_of(shape, noise=0.01))


def test_one_degenerate_pair_among_others() -> None:
    pair = scattered(matched_pair(6, points=40, noise=0.01, seed=6))
    flat = degenerate.pair_of("plane")
    parts = [torch.cat([whole, one[None]]) for whole, one in zip(pair, flat, strict=True)]
    found = assert_both_agree("point_to_plane", MatchedPair(*parts))
    assert found.observability.determined.tolist() == [6] * 6 + [3]


@pytest.mark.parametrize(
    "settings", [{"max_iterations": 1}, {"initial": "truth"}, {"hold": ("rx", "ry")}, {"gradient": "penalty"}]
)
def test_whatever_is_asked_for(settings: dict) -> None:
    pair = scattered(matched_pair(4, points=40, noise=0.01, seed=7))
    settings = {name: pair.T_target_source if value == "truth" else value for name, value in settings.items()}
    assert_both_agree("point_to_plane", pair, **settings)


def test_a_plain_pair_takes_one_sprint_on_arrays() -> None:
    pair = scattered(matched_pair(4, points=40, noise=0.01))
    with (
        patch("p2plane.solve.minimize.sprint", wraps=sprint.sprint) as run,
        patch("p2plane.solve.minimize.newton") as newton,
    ):
        point_to_plane(*pair[:4])
    (call,) = run.call_args_list
    assert isinstance(call.args[0], np.ndarray)
    newton.assert_not_called()


def test_arrays_share_memory_and_followed_tensors_stay_tensors() -> None:
    tensor = torch.ones(2, 3, dtype=torch.float64)
    (array,) = arrays.small(tensor)
    array[0, 0] = 5
    assert tensor[0, 0] == 5
    assert arrays.tensor_of(array).data_ptr() == tensor.data_ptr()
    assert arrays.small(tensor.requires_grad_())[0] is tensor
    with torch.no_grad():
        assert isinstance(arrays.small(tensor)[0], np.ndarray)
    with torch.autograd.forward_ad.dual_level():
        assert isinstance(arrays.small(tensor.detach())[0], Tensor)
    kinds = []
    torch.func.vmap(lambda row: (kinds.extend(map(type, arrays.small(row))), row)[1])(tensor.detach())
    assert kinds == [Tensor]
    assert isinstance(arrays.small(torch.ones(2, device="meta"))[0], Tensor)


def test_an_upstream_gradient_that_is_not_finite_raises_nothing():
    source = torch.randn(2, 50, 3, generator=torch.Generator().manual_seed(0))
    normals = torch.nn.functional.normalize(source / torch.tensor([1.0, 2.0, 3.0]), dim=-1)
    target = (source + 0.1).requires_grad_()
    T = point_to_plane(source, target, normals).T_target_source
    (gradient,) = torch.autograd.grad(T, target, torch.full_like(T, float("inf")))
    assert not gradient.isfinite().all()
