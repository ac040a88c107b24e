"""The same question has the same answer: asked twice, in another precision, or in another batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from p2plane import Alignment, point_to_plane, register
from p2plane.classical.icp import icp
from tests.clouds import DISTANCES, align, matched_pair
from tests.networks.small import NAMES, inputs, shape_pairs, small

METHODS = ("layer", "icp", *NAMES)


def question(name: str, dtype: torch.dtype = torch.float32) -> tuple[Callable[..., Alignment], tuple[Tensor, ...]]:
    """A method of that name, and four pairs for it."""
    if name == "layer":
        pair = matched_pair(4, points=96, noise=0.01)
        return point_to_plane, tuple(tensor.to(dtype) for tensor in pair[:4])
    arrays = tuple(tensor.to(dtype) for tensor in inputs(shape_pairs()))
    return icp if name == "icp" else small(name, "plane", dtype=dtype), arrays


@torch.no_grad()
def answer(method: Callable[..., Alignment], arrays: tuple[Tensor, ...]) -> Tensor:
    return method(*arrays).T_target_source


@pytest.mark.parametrize("name", METHODS)
def test_asked_twice_the_answer_is_the_same_bit_for_bit(name):
    method, arrays = question(name)
    first = answer(method, arrays)
    torch.rand(7)  # other random numbers in between change nothing
    assert torch.equal(answer(method, tuple(tensor.clone() for tensor in arrays)), first)


def test_a_registration_with_the_same_seed_is_the_same_bit_for_bit():
    source, target = (tensor[0].double() for tensor in inputs(shape_pairs(1, 256, noise=0.0))[:2])
    first, second = (register(source, target, method="sweep", seed=3) for _ in range(2))
    assert torch.equal(first.T_target_source, second.T_target_source)
    assert first.confidence == second.confidence


@pytest.mark.parametrize("name", ["layer", "icp", "dcp-v1", "dcp-v2"])
def test_single_precision_gives_what_it_can_of_double_precision(name):
    """The clouds are about one in size, so that an entry of a pose is rounded to 1e-7; ten to a hundred times that."""
    single, double = (answer(*question(name, dtype)) for dtype in (torch.float32, torch.float64))
    assert single.dtype == torch.float32
    assert_close(single.double(), double, rtol=0, atol=2e-5)


@pytest.mark.parametrize("distance", DISTANCES)
def test_a_pair_of_matched_points_does_not_see_its_batch(distance):
    together = align(distance, pair := matched_pair(5, points=40, noise=0.01))
    for index in range(5):
        alone = align(distance, type(pair)(*(tensor[index : index + 1] for tensor in pair)))
        assert_close(alone.T_target_source, together.T_target_source[index : index + 1], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", METHODS)
def test_a_pair_does_not_see_its_batch(name):
    method, arrays = question(name, torch.float64)
    together = answer(method, arrays)
    for index in range(4):
        alone = answer(method, tuple(tensor[index : index + 1] for tensor in arrays))
        assert_close(alone, together[index : index + 1], rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ["dcp-v1", "dcp-v2", "prnet"])
def test_networks_run_on_the_meta_device_where_nothing_can_be_read(name):
    network, arrays = question(name)
    found = answer(network.to("meta"), tuple(tensor.to("meta") for tensor in arrays))
    assert (found.shape, found.device.type) == ((4, 4, 4), "meta")
