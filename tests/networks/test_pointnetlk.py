"""PointNetLK Revisited, against the published program with its weights, and on clouds with known answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from p2plane import se3, so3
from p2plane.data.modelnet import ModelNet40
from p2plane.data.synthetic import SyntheticShapes
from p2plane.evaluation.metrics import rotation_error, translation_error
from p2plane.networks.comparison_losses import pointnetlk_loss
from p2plane.networks.pointnetlk import PointNetLK, PointNetLKConfig, group_exp
from p2plane.networks.published import import_published, read_published
from tests.clouds import matched_pair, surface
from tests.data.real import ROOT, needs

ORACLE = Path(__file__).parents[1] / "oracles" / "pointnetlk.npz"
WEIGHTS = ROOT / "weights" / "pointnetlk_revisited_modelnet40_model_best.pth"
needs_weights = pytest.mark.skipif(not WEIGHTS.is_file(), reason=f"P2PLANE_DATA holds no weights/{WEIGHTS.name}")


def as_published() -> PointNetLK:
    network = PointNetLK().eval()
    import_published(network, read_published(WEIGHTS))
    return network


def small(*, dtype: torch.dtype = torch.float64, **settings) -> PointNetLK:
    """With random weights and statistics; features of random weights are enough for small motions."""
    torch.manual_seed(0)
    network = PointNetLK(PointNetLKConfig(**({"widths": (16, 32, 128)} | settings))).to(dtype).eval()
    for name, buffer in network.named_buffers():
        if "running" in name:
            buffer.uniform_(0.5, 1.0) if "var" in name else buffer.normal_(0, 0.1)
    return network


def small_motions(batch: int, size: float, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    twist = torch.nn.functional.normalize(torch.randn(batch, 6, generator=generator, dtype=dtype), dim=-1)
    return group_exp(size * twist)


def recovered(network: PointNetLK, target: torch.Tensor, T: torch.Tensor) -> torch.Tensor:
    """(B,) whether the motion is found to a tenth of a degree and a thousandth."""
    with torch.no_grad():
        estimate = network(se3.apply(se3.inverse(T), target), target).T_target_source
    return (rotation_error(estimate, T) < 2e-3) & (translation_error(estimate, T) < 1e-3)


@needs_weights
def test_the_answer_is_that_of_the_published_program():
    network = as_published()
    with np.load(ORACLE) as file:
        expected = {name: torch.from_numpy(file[name]) for name in file}
    template = expected["p0"] - expected["p0"].mean(1, keepdim=True)
    feature, rows = network.ptnet(template)
    assert_close(feature, expected["f0"], rtol=0, atol=1e-5)
    assert_close(network.ptnet.jacobian(template, rows), expected["J"], rtol=0, atol=1e-5)
    alignment = network(expected["p1"], expected["p0"])
    assert_close(alignment.T_target_source, expected["g"], rtol=0, atol=1e-5)
    assert_close(alignment.T_target_source, se3.inverse(expected["G"]), rtol=0, atol=1e-5)
    assert alignment.converged.all()


@needs_weights
@needs("modelnet40_ply_hdf5_2048")
def test_the_published_weights_recover_motions_of_real_shapes():
    shapes = ModelNet40("test", root=ROOT, points=1000)
    clouds = [shapes[i].points for i in range(0, len(shapes), 300)]
    clouds = torch.stack([each for each in clouds if len(each) == 1000])
    network = as_published()
    near = small_motions(len(clouds), 0.1, dtype=torch.float32)
    assert recovered(network, clouds, near).all()
    far = small_motions(len(clouds), 0.6, seed=1, dtype=torch.float32)
    assert recovered(network, clouds, far).float().mean() > 0.8


@needs_weights
def test_the_published_weights_recover_motions_of_built_in_shapes():
    clouds = torch.stack([shape.points for shape in SyntheticShapes("test", shapes_per_category=1, points=300)])[::2]
    T = small_motions(len(clouds), 0.3, dtype=torch.float32)
    assert recovered(as_published(), clouds, T).float().mean() > 0.9


def test_the_jacobian_is_that_of_finite_differences():
    network = small().ptnet
    points, _ = surface(2, points=40, generator=torch.Generator().manual_seed(0))
    points = points - points.mean(1, keepdim=True)
    feature, rows = network(points)
    step = 1e-6
    columns, steady = [], torch.ones_like(rows, dtype=torch.bool)
    for axis in torch.eye(6, dtype=points.dtype):
        ahead, rows_ahead = network(se3.apply(group_exp(-step * axis), points))
        behind, rows_behind = network(se3.apply(group_exp(step * axis), points))
        columns.append((ahead - behind) / (2 * step))
        steady &= (rows_ahead == rows) & (rows_behind == rows) & ((ahead > 0) == (behind > 0))
    assert steady.float().mean() > 0.9
    jacobian = network.jacobian(points, rows)
    assert_close(jacobian[steady], torch.stack(columns, dim=-1)[steady], rtol=1e-6, atol=1e-6)
    assert (jacobian[feature == 0] == 0).all()


def test_the_exponential_is_that_of_the_group():
    twist = torch.randn(5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole, half = group_exp(twist), group_exp(twist / 2)
    assert_close(half @ half, whole)
    assert_close(whole[:, :3, :3], so3.exp(twist[:, :3]))
    twist.requires_grad_()
    assert torch.autograd.gradcheck(group_exp, (twist,))
    zero = torch.zeros(1, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(group_exp, (zero,))


def test_a_small_motion_is_found_exactly_even_with_random_weights():
    target, _ = surface(3, points=100, generator=torch.Generator().manual_seed(2))
    T = small_motions(3, 0.05)
    source = se3.apply(se3.inverse(T), target)
    alignment = small()(source, target)
    assert_close(alignment.T_target_source, T, rtol=0, atol=1e-7)
    assert alignment.converged.all()
    assert (alignment.iterations == len(alignment.rounds)).all()
    assert (alignment.residuals < 1e-6).all()
    last = alignment.rounds[-1]  # the pairs of channels come together as well
    assert_close(se3.apply(T, last.source), last.matched, rtol=0, atol=1e-6)
    assert last.extras["residual"].abs().max() < 1e-6


def test_the_order_of_points_does_not_matter():
    pair, network = matched_pair(2, points=50, seed=3), small()
    order = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    source = se3.apply(small_motions(2, 0.3), pair.target) + 0.01 * pair.source
    before, after = network(source, pair.target), network(source[:, order], pair.target[:, order.flip(0)])
    assert_close(after.T_target_source, before.T_target_source, rtol=0, atol=1e-9)


@pytest.mark.parametrize("training", [False, True])
def test_padding_by_mask_changes_nothing(training):
    target, _ = surface(2, points=40, generator=torch.Generator().manual_seed(4))
    source = se3.apply(small_motions(2, 0.2), target)[:, :35]
    padding = torch.full((2, 5, 3), float("nan"), dtype=torch.float64)
    mask = torch.arange(40).expand(2, 40) < 35
    networks = [small(train_points=None).train(training) for _ in range(2)]
    plain = networks[0](source, target)
    padded = networks[1](torch.cat([source, padding], dim=1), target, source_mask=mask)
    assert_close(padded.T_target_source, plain.T_target_source, rtol=0, atol=1e-9)
    assert_close(padded.energy, plain.energy)
    for name, buffer in networks[0].named_buffers():
        assert_close(dict(networks[1].named_buffers())[name], buffer)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("case", ["eight points", "identical", "coincident", "collinear", "other number", "one point"])
def test_hard_clouds_give_finite_answers_and_gradients(case, training):
    pair = matched_pair(2, points=30, seed=5, dtype=torch.float32)
    source, target = {
        "eight points": (pair.source[:, :8], pair.target[:, :8]),
        "identical": (pair.source, pair.source),
        "coincident": (pair.source, pair.target[:, :1].expand(2, 30, 3)),
        "collinear": (pair.source, pair.target[:, :, :1].expand(2, 30, 3)),
        "other number": (pair.source[:, :13], pair.target),
        "one point": (pair.source[:, :1], pair.target[:, :1]),
    }[case]
    source = source.clone().requires_grad_()
    network = small(dtype=torch.float32).train(training)
    alignment = network(source, target, generator=torch.Generator().manual_seed(0))
    assert alignment.T_target_source.isfinite().all()
    pointnetlk_loss(alignment, pair.T_target_source).backward()
    assert source.grad.isfinite().all()
    assert all(each.grad.isfinite().all() for each in network.parameters() if each.grad is not None)
    if case == "identical":
        assert_close(alignment.T_target_source, torch.eye(4).expand(2, 4, 4), rtol=0, atol=1e-5)
    if case in ("coincident", "one point"):  # nothing can be known of the rotation, and it stays
        assert not alignment.converged.any()
        assert_close(alignment.R, torch.eye(3).expand(2, 3, 3))


@pytest.mark.parametrize("training", [False, True])
def test_a_search_that_gets_lost_stays_finite(training):
    generator = torch.Generator().manual_seed(1)
    source = 1e4 * torch.randn(4, 50, 3, generator=generator)
    target = torch.randn(4, 50, 3, generator=generator)
    network = small(dtype=torch.float32, test_rounds=60).train(training)
    alignment = network(source, target, generator=generator)
    assert alignment.T_target_source.isfinite().all()
    assert not alignment.converged.any()
    pointnetlk_loss(alignment, torch.eye(4).expand(4, 4, 4)).backward()
    assert all(each.grad.isfinite().all() for each in network.parameters())


def test_one_bad_pair_stays_one_bad_pair():
    target, _ = surface(2, points=60, generator=torch.Generator().manual_seed(6))
    source = se3.apply(small_motions(2, 0.05), target)
    alone = small()(source[:1], target[:1])
    target[1] = 0.5
    both = small()(source, target)
    assert both.converged.tolist() == [True, False]
    assert_close(both.T_target_source[:1], alone.T_target_source, rtol=0, atol=1e-6)


def test_training_draws_from_the_generator_alone():
    pair = matched_pair(2, points=200, seed=7)
    poses = []
    for seed in (0, 0, 1):
        alignment = small().train()(pair.source, pair.source + 0.01, generator=torch.Generator().manual_seed(seed))
        poses.append(alignment.rounds[0].source)
    assert_close(poses[0], poses[1], rtol=0, atol=0)
    assert not torch.equal(poses[0], poses[2])


def test_the_gradient_of_two_passes_is_the_sum_of_their_gradients():
    """Running statistics change in between, which must not disturb the backward of the first pass."""
    pair, network = matched_pair(2, points=50, seed=8), small(train_points=None).train()
    losses = [pointnetlk_loss(network(pair.source, pair.source + 0.1), pair.T_target_source) for _ in range(2)]
    sum(losses).backward()
    assert all(each.grad.isfinite().all() for each in network.parameters())


def test_the_loss_of_a_perfect_pose_is_that_of_its_features():
    target, _ = surface(2, points=50, generator=torch.Generator().manual_seed(9))
    T = small_motions(2, 0.02)
    alignment = small()(se3.apply(se3.inverse(T), target), target)
    assert pointnetlk_loss(alignment, T) < 1e-8
    moved = group_exp(torch.tensor([[0.0, 0.0, 0.0, 0.3, 0.0, 0.0]], dtype=torch.float64)) @ T
    assert_close(pointnetlk_loss(alignment, moved).item(), 0.09, rtol=0, atol=1e-5)
    once = small(test_rounds=1)(se3.apply(se3.inverse(T), target), target)
    residual = once.rounds[0].extras["residual"].square().sum()
    assert_close(pointnetlk_loss(once, once.T_target_source), residual)


def test_training_lowers_the_loss():
    torch.manual_seed(0)
    network = PointNetLK(PointNetLKConfig(widths=(16, 32, 128), train_points=50, train_rounds=5))
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(10)
    points, _ = surface(8, points=100, generator=generator, dtype=torch.float32)

    def loss_of(step):
        T = small_motions(8, 0.8, seed=step, dtype=torch.float32)
        source = se3.apply(se3.inverse(T), points) + 0.01 * torch.randn(points.shape, generator=generator)
        return pointnetlk_loss(network(source, points, generator=generator), T)

    with torch.no_grad():  # features are small, and so is the loss, until the running statistics have settled
        for step in range(50):
            loss_of(100 + step)
    losses = []
    for step in range(50):
        loss = loss_of(step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    losses = torch.stack(losses)
    assert losses.isfinite().all()
    assert losses[-10:].mean() < 0.8 * losses[:10].mean()


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match=r"widths must be three positive numbers, got \(64, 128\)"):
        PointNetLKConfig(widths=(64, 128))
    with pytest.raises(ValueError, match="test_rounds must be at least 1, got 0"):
        PointNetLKConfig(test_rounds=0)
