"""Tessera: what it does not change with, whom it takes in, and that it learns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from p2plane import se3, so3
from p2plane.evaluation.metrics import rotation_error
from p2plane.networks.door import Clouds
from p2plane.networks.frames import frames_of, side_by_side
from p2plane.networks.head import HeadConfig
from p2plane.networks.invariants import edge_invariants, pair_invariants
from p2plane.networks.near_match import Described, NearMatch
from p2plane.networks.tessera import Tessera, TesseraConfig
from p2plane.networks.tessera_loss import match_loss, tessera_loss
from p2plane.networks.weights import load_model, save_model
from tests.clouds import surface

SMALL = TesseraConfig(tokens=24, neighbors=8, token_neighbors=12, point_width=16, width=16, blocks=1, heads=2)


def network(dtype: torch.dtype = torch.float64, **changes) -> Tessera:
    torch.manual_seed(0)
    return Tessera(replace(SMALL, **changes)).to(dtype).eval()


def clouds(batch: int = 2, points: int = 60, others: int = 50, dtype: torch.dtype = torch.float64):
    """Points and normals of two ellipsoids that touch, drawn twice, and the motion between the draws."""
    generator = torch.Generator().manual_seed(0)
    cloud, normals = surface(batch, points=points + others, generator=generator, dtype=dtype)
    cloud[:, ::2] = cloud[:, ::2] * 0.4 + 0.9
    T = se3.random(batch, generator=generator, dtype=dtype)
    target, target_normals = se3.apply(T, cloud[:, points:]), se3.rotate(T, normals[:, points:])
    return (cloud[:, :points], target, normals[:, :points], target_normals), T


def test_pairs_have_the_invariants_of_edges():
    (points, _, normals, _), _ = clouds()
    edges = edge_invariants(points[:, None] - points[:, :, None], normals[:, :, None], normals[:, None])
    pairs = pair_invariants(points, normals)
    assert_close(pairs[:, :, [8, 9, 10, 11, 15]].transpose(2, 3), edges, rtol=0, atol=1e-6)


def test_a_rotation_turns_every_round_and_changes_no_match():
    inputs, _ = clouds()
    T = se3.random(2, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    turned = (se3.apply(T, inputs[0]), inputs[1], se3.rotate(T, inputs[2]), inputs[3])
    before, after = network()(*inputs), network()(*turned)
    for one, other in zip(before.rounds, after.rounds, strict=True):
        assert_close(other.match, one.match, rtol=0, atol=1e-6)
        assert_close(other.T_target_source @ T, one.T_target_source, rtol=0, atol=1e-6)


def test_signs_of_normals_do_not_matter():
    inputs, _ = clouds()
    generator = torch.Generator().manual_seed(1)
    signs = [torch.randint(0, 2, (2, size, 1), generator=generator) * 2.0 - 1 for size in (60, 50)]
    flipped = network()(inputs[0], inputs[1], signs[0] * inputs[2], signs[1] * inputs[3])
    assert_close(flipped.T_target_source, network()(*inputs).T_target_source)


def test_scaling_both_clouds_scales_the_answer():
    inputs, _ = clouds()
    answer, scaled = network()(*inputs), network()(1000 * inputs[0], 1000 * inputs[1], *inputs[2:])
    assert_close(scaled.R, answer.R, rtol=0, atol=1e-6)
    assert_close(scaled.t, 1000 * answer.t, rtol=1e-5, atol=1e-3)


def test_the_order_of_points_does_not_matter():
    inputs, _ = clouds()
    source, target = (torch.randperm(size, generator=torch.Generator().manual_seed(size)) for size in (60, 50))
    shuffled = network()(inputs[0][:, source], inputs[1][:, target], inputs[2][:, source], inputs[3][:, target])
    assert_close(shuffled.T_target_source, network()(*inputs).T_target_source)


@pytest.mark.parametrize("head", ["plane", "point"])
def test_what_stands_in_absent_rows_does_not_matter(head):
    inputs, _ = clouds()
    model = network(head=HeadConfig(head))
    mask = torch.arange(60) < torch.tensor([[60], [33]])
    hidden = [torch.where(mask[..., None], each, torch.nan) for each in (inputs[0], inputs[2])]
    together = model(hidden[0], inputs[1], hidden[1], inputs[3], source_mask=mask)
    alone = model(inputs[0][1:, :33], inputs[1][1:], inputs[2][1:, :33], inputs[3][1:])
    assert_close(together.T_target_source[1:], alone.T_target_source, rtol=0, atol=1e-7)
    assert_close(together.rounds[-1].match[1:, :33], alone.rounds[-1].match, rtol=0, atol=1e-7)
    assert together.rounds[-1].match.shape == (2, 60, 50)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_tiny_and_degenerate_clouds_give_finite_poses(count):
    inputs, _ = clouds(points=60, others=50)
    model = network()
    tiny = model(inputs[0][:, :count], inputs[1][:, :7])  # normals are missing, and cannot all be estimated
    same = model(inputs[0][:1, :1].expand(-1, count, -1), inputs[1][:1, :1].expand(-1, 4, -1))
    assert tiny.normals_estimated
    assert tiny.T_target_source.isfinite().all()
    assert same.T_target_source.isfinite().all()


def test_clouds_that_are_nowhere_near_keep_the_pose_before():
    inputs, _ = clouds(1, 4, 4)
    far = se3.from_rotation_translation(torch.eye(3, dtype=torch.float64)[None], torch.full((1, 3), 1e3).double())
    alignment, _ = network()._near_round(Clouds(*inputs), torch.full((1, 4, 4), -1e6, dtype=torch.float64), far)
    assert_close(alignment.T_target_source, far)


def test_affinity_is_the_formula():
    generator = torch.Generator().manual_seed(0)
    near = NearMatch().double()
    x, n, y, m = (torch.randn(1, size, 3, generator=generator, dtype=torch.float64) for size in (5, 5, 6, 6))
    f, g = (torch.randn(1, size, 4, generator=generator, dtype=torch.float64) for size in (5, 6))
    ours, theirs = f[..., 0], g[..., 0]
    T, h = se3.random(1, generator=generator, dtype=torch.float64), torch.tensor([0.7], dtype=torch.float64)
    affinity = near(Described(x, n, f, ours), Described(y, m, g, theirs), T, h, 1)
    a, b, s, e, c, alpha = near.numbers(1)
    apart = se3.apply(T, x)[:, :, None] - y[:, None]
    across, along = apart.square().sum(-1), (apart * m[:, None]).sum(-1).square()
    looks = s * f @ g.mT + e * (ours[..., None] + theirs[:, None])
    agree = (se3.rotate(T, n) @ m.mT).square()
    assert_close(affinity, looks - (a * across + b * along) / h**2 + c * agree + alpha)
    assert_close(near.numbers(9), near.numbers(2))


def test_later_rounds_bring_points_together_that_are_near():
    """Without any training, the later rounds are a soft ICP."""
    inputs, T = clouds(points=200, others=200, dtype=torch.float32)
    model = network(torch.float32, tokens=64, neighbors=16)
    turn = so3.exp(torch.tensor([0.1, -0.05, 0.05]))
    pair = Clouds(*inputs)
    frames, pose = frames_of(pair), T.clone()
    pose[:, :3, :3] = turn @ T[:, :3, :3]
    both = side_by_side(pair, frames)
    blank = torch.zeros(2, 200, 1), torch.zeros(2, 200)
    described = [Described(both.points.chunk(2)[side], both.normals.chunk(2)[side], *blank) for side in (0, 1)]
    spacing = torch.full((2,), 0.25)
    before = rotation_error(pose, T)
    for number in range(4):
        affinity = model.near(*described, frames.to_local(pose), spacing, number)
        pose = model._near_round(pair, affinity, pose)[0].T_target_source
    assert (rotation_error(pose, T) < before / 5).all()


def test_gradients_are_finite_and_reach_every_parameter():
    inputs, T = clouds()
    model = network().train()
    alignment = model(*inputs, generator=torch.Generator().manual_seed(0))
    assert len(alignment.rounds) == SMALL.train_rounds
    tessera_loss(alignment, inputs[0], T, near_weight=0.1).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    silent = [name for name, parameter in model.named_parameters() if parameter.grad.abs().max() == 0]
    assert silent == []


def test_the_right_match_costs_nothing_and_a_wrong_one_a_lot():
    inputs, T = clouds()
    alignment = network(test_rounds=1)(*inputs)
    one = alignment.rounds[0]
    source = se3.apply(se3.inverse(T), one.extras["partners"])  # every partner is there
    size = source.shape[1]
    right = torch.eye(size, dtype=torch.float64).expand(2, -1, -1)
    none = torch.zeros(2, size, dtype=torch.float64)
    extras = {"row_slack": none, "column_slack": none, "partners": one.extras["partners"]}
    assert match_loss(replace(one, source=source, match=right, extras=extras), T).max() < 1e-3
    wrong = right.roll(size // 2, dims=1)
    assert match_loss(replace(one, source=source, match=wrong, extras=extras), T).min() > 5


def test_a_few_steps_lower_the_loss():
    inputs, T = clouds(points=120, others=120, dtype=torch.float32)
    model = network(torch.float32, tokens=48, width=32).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for step in range(25):
        alignment = model(*inputs, generator=torch.Generator().manual_seed(step))
        loss = tessera_loss(alignment, inputs[0], T)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])


def test_weights_go_through_a_file_and_fit_the_other_head(tmp_path):
    inputs, _ = clouds(dtype=torch.float32)
    model = network(torch.float32)
    save_model(tmp_path / "tessera.safetensors", model, {"why": "a test"})
    again = load_model(tmp_path / "tessera.safetensors")
    assert_close(again(*inputs).T_target_source, model(*inputs).T_target_source)
    by_points = load_model(tmp_path / "tessera.safetensors", head=HeadConfig("point"))
    assert_close(by_points(*inputs).rounds[0].match, model(*inputs).rounds[0].match)


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="width must be a multiple of heads, 3, got 16"):
        replace(SMALL, heads=3)
    with pytest.raises(ValueError, match="tokens must be at least 1, got 0"):
        replace(SMALL, tokens=0)
