"""All matching networks with both heads: what does not change their answers, and clouds that are hard to answer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from p2plane.networks.head import HeadConfig
from tests.networks.small import HEADS, NAMES, inputs, shape_pairs, small

EACH = pytest.mark.parametrize(("name", "head"), [(name, head) for name in NAMES for head in HEADS])


def padded(values: Tensor, more: int) -> Tensor:
    return torch.cat([values, torch.full((len(values), more, 3), torch.nan, dtype=values.dtype)], dim=1)


@EACH
def test_the_order_of_points_does_not_matter(name, head):
    batch, network = shape_pairs(2), small(name, head)
    orders = [torch.randperm(48, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    shuffled = [values[:, orders[i % 2]] for i, values in enumerate(inputs(batch))]
    before, after = network(*inputs(batch)), network(*shuffled)
    assert_close(after.T_target_source, before.T_target_source, rtol=0, atol=1e-8)


def still(name: str) -> dict[str, bool]:
    """Settings without noise in training, which is drawn for padding too and so differs with it."""
    return {"sample_in_training": False} if name in ("prnet", "rpmnet") else {}


@EACH
@pytest.mark.parametrize("training", [False, True])
def test_padding_by_mask_changes_nothing(name, head, training):
    batch = shape_pairs(3)
    networks = [small(name, head, **still(name)).train(training) for _ in range(2)]
    masks = [torch.arange(48 + more).expand(3, -1) < 48 for more in (5, 9)]
    whole = networks[0](*inputs(batch))
    filled = [padded(values, (5, 9)[i % 2]) for i, values in enumerate(inputs(batch))]
    result = networks[1](*filled, source_mask=masks[0], target_mask=masks[1])
    assert_close(result.T_target_source, whole.T_target_source, rtol=0, atol=1e-8)
    assert_close(dict(networks[1].named_buffers()), dict(networks[0].named_buffers()))


@EACH
def test_a_ragged_batch_is_its_pairs_one_by_one(name, head):
    batch, network = shape_pairs(2), small(name, head)
    arrays = list(inputs(batch))
    keep = torch.arange(48)[None] < torch.tensor([[48], [20]])  # fewer than there are key points
    both = network(*arrays, source_mask=keep, target_mask=keep)
    alone = network(*(values[1:, :20] for values in arrays))
    assert_close(both.T_target_source[1:], alone.T_target_source, rtol=0, atol=1e-8)


@pytest.mark.parametrize("normals", ["tensor", "eigenvector"])
@pytest.mark.parametrize("name", NAMES)
def test_flipped_target_normals_change_nothing_where_only_the_head_sees_them(name, normals):
    settings = {"features": ("dxyz", "xyz")} if name == "rpmnet" else {}
    batch, network = shape_pairs(2), small(name, HeadConfig("plane", normals=normals), **settings)
    source, target, source_normals, target_normals = inputs(batch)
    signs = torch.where(torch.arange(48) % 3 == 0, -1.0, 1.0)[:, None].double()
    before = network(source, target, source_normals, target_normals)
    after = network(source, target, source_normals, signs * target_normals)
    assert_close(after.T_target_source, before.T_target_source, rtol=0, atol=1e-8)


CASES = {
    "eight points": lambda s, t: (s[:, :8], t[:, :8]),
    "other number": lambda s, t: (s[:, :13], t),
    "identical": lambda s, t: (s, s),
    "coincident": lambda s, t: (s[:, :1].expand_as(s), t),
    "both coincident": lambda s, t: (s[:, :1].expand_as(s), t[:, :1].expand_as(t)),
    "collinear": lambda s, t: (s[..., :1].expand_as(s), t),
    "one point": lambda s, t: (s[:, :1], t[:, :1]),
    "far away": lambda s, t: (s + 1e4, t - 1e4),
}


@EACH
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("training", [False, True])
def test_hard_clouds_give_finite_answers_and_gradients(name, head, case, training):
    batch = shape_pairs(2, 30, dtype=torch.float32)
    source, target = CASES[case](batch.source, batch.target)
    source, target = source.clone().requires_grad_(), target.clone().requires_grad_()
    normals = batch.source_normals[:, : source.shape[1]], batch.target_normals[:, : target.shape[1]]
    network = small(name, head, dtype=torch.float32).train(training)
    alignment = network(source, target, *normals, generator=torch.Generator().manual_seed(0))
    assert alignment.T_target_source.isfinite().all()
    R = alignment.R.detach().double()
    assert_close(R @ R.mT, torch.eye(3).double().expand(2, 3, 3), rtol=0, atol=1e-5)
    alignment.T_target_source.square().sum().backward()
    for each in (source, target, *network.parameters()):
        assert each.grad is None or each.grad.isfinite().all()


@EACH
def test_missing_normals_are_estimated_on_hard_clouds_too(name, head):
    batch, network = shape_pairs(2, 30, dtype=torch.float32), small(name, head, dtype=torch.float32)
    for case in ("eight points", "coincident", "one point"):
        alignment = network(*CASES[case](batch.source, batch.target))
        assert alignment.T_target_source.isfinite().all()
        assert alignment.normals_estimated == (head == "plane" or name == "rpmnet")


@EACH
def test_an_empty_cloud_is_an_error(name, head):
    batch, network = shape_pairs(2, 30), small(name, head)
    source, target, *_ = inputs(batch)
    with pytest.raises(ValueError, match="source must have at least 1 points in every cloud, got 0"):
        network(source[:, :0], target)
    nothing = torch.zeros(2, 30, dtype=torch.bool)
    with pytest.raises(ValueError, match="target must have at least 1 points in every cloud, got 0"):
        network(source, target, target_mask=nothing)
