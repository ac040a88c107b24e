"""RPMNet against the published program, against itself without any tricks, and its parts."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from p2plane import se3
from p2plane.networks.ppf import edges_within, first_within, point_pair_features
from p2plane.networks.rpmnet import RPMNet, RPMNetConfig
from p2plane.networks.rpmnet_loss import rpmnet_loss
from tests.networks import plain_rpmnet
from tests.networks.oracle import assert_all_close, clouds, oracle, relative_error, with_oracle_weights
from tests.networks.small import inputs, motions, shape_pairs, small


def test_the_answer_is_that_of_the_published_program():
    expected = oracle("rpmnet")
    network = with_oracle_weights(RPMNet(RPMNetConfig(test_rounds=3)), expected["seed"])
    with torch.no_grad():
        rounds = network(*clouds(expected)).rounds
    for i, each in enumerate(rounds):
        assert_close(each.T_target_source[:, :3], expected["transforms"][i], rtol=0, atol=1e-9)
        assert_close(each.extras["beta"], expected["beta"][i], rtol=0, atol=1e-9)
        assert_close(each.extras["alpha"], expected["alpha"][i], rtol=0, atol=1e-9)
    for i in (0, 2):
        assert_close(rounds[i].match.float(), expected[f"match{i}"], rtol=0, atol=1e-5)
    assert_close(rounds[0].extras["source_features"].float(), expected["feat_src0"], rtol=0, atol=1e-5)
    assert_close(rounds[0].extras["target_features"].float(), expected["feat_ref0"], rtol=0, atol=1e-5)


def test_the_loss_and_its_gradient_are_those_of_the_published_program():
    expected = oracle("rpmnet")
    network = with_oracle_weights(RPMNet(RPMNetConfig(test_rounds=2)), expected["seed"])
    loss = rpmnet_loss(network(*clouds(expected)), expected["in_src"], expected["T_true"])
    loss.backward()
    assert_close(loss, expected["loss2"], rtol=0, atol=1e-9)
    gradient = network.feat_extractor.prepool[0].weight.grad
    assert relative_error(gradient, expected["grad_prepool0"].flatten(1)) < 1e-6


@pytest.mark.parametrize(("head", "plane_match"), [("point", "hard"), ("plane", "hard"), ("plane", "soft")])
@pytest.mark.parametrize(("training", "rounds"), [(True, 2), (False, 2), (False, 1)])
def test_values_and_gradients_are_those_of_the_plain_version(head, plane_match, training, rounds):
    """A normal and its own copy have an angle without a derivative: after a turn, rounding gives the plain one any."""
    batch = shape_pairs(2, 40)
    answers = []
    for is_plain in (False, True):
        settings = {"plane_match": plane_match, "sample_in_training": False}
        settings |= {"neighbors": 8, "train_rounds": rounds, "test_rounds": rounds}
        network = small("rpmnet", head, **settings).train(training)
        with torch.no_grad():
            network.feat_extractor.prepool[7].weight[::2] *= -1  # some turn the order of values around
        arrays = [each.clone().requires_grad_() for each in inputs(batch)]
        if is_plain:
            pairs = plain_rpmnet.register(network, *arrays)
        else:
            pairs = [(each.T_target_source, each.match) for each in network(*arrays).rounds]
        poses, matches = (torch.stack(each) for each in zip(*pairs, strict=True))
        weights = torch.linspace(0.5, 1.0, 16, dtype=torch.float64).view(4, 4)
        (poses * weights).sum().backward(retain_graph=True)
        matches.square().sum().backward()
        if rounds > 1:
            del arrays[2]
        answers.append([poses, matches, *(each.grad for each in (*arrays, *network.parameters()))])
    assert_all_close(*answers)


def test_the_first_within_a_radius_are_found_in_the_order_of_the_cloud():
    points = shape_pairs(2, 60).source
    for count in (4, 100):
        indices, counts = first_within(points, 0.6, count)
        for cloud in range(2):
            expected = plain_rpmnet.first_within(points[cloud], 0.6, count)
            assert torch.equal(indices[cloud], expected)
            assert torch.equal(counts[cloud], (expected != torch.arange(60)[:, None]).sum(-1))


def test_copies_of_the_centre_count_as_often_as_they_are_needed():
    batch = shape_pairs(2, 30)
    edges = edges_within(batch.source, batch.source_normals, 0.4, 12)
    raw = torch.stack(
        [
            plain_rpmnet.raw_channels(points, normals, plain_rpmnet.first_within(points, 0.4, 12))
            for points, normals in zip(batch.source, batch.source_normals, strict=True)
        ]
    ).flatten(1, 2)
    raw = torch.cat([raw, torch.ones_like(raw[..., :1])], dim=-1)
    assert_close(edges.moments, raw.mT @ raw)
    T = motions(2)
    turned = edges_within(se3.apply(T, batch.source), se3.rotate(T, batch.source_normals), 0.4, 12)
    motion = edges.motion(T)
    assert_close(motion @ edges.moments @ motion.mT, turned.moments)


def test_point_pair_features_do_not_change_with_the_pose_and_are_those_of_a_known_pair():
    x, y = torch.tensor([[0.0, 0.0, 0.0]]).double(), torch.tensor([[2.0, 0.0, 0.0]]).double()
    n, m = torch.tensor([[0.0, 0.0, 1.0]]).double(), torch.tensor([[1.0, 0.0, 0.0]]).double()
    expected = torch.tensor([[torch.pi / 2, 0.0, torch.pi / 2, 2.0]], dtype=torch.float64)
    assert_close(point_pair_features(x, n, y, m), expected)
    T = motions(1)[0]
    moved = point_pair_features(se3.apply(T, x), se3.rotate(T, n), se3.apply(T, y), se3.rotate(T, m))
    assert_close(moved, expected)
    zero = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    features = point_pair_features(zero, zero, zero, zero)
    features.sum().backward()
    assert (features == 0).all()
    assert zero.grad.isfinite().all()


@pytest.mark.parametrize("head", ["point", "plane"])
def test_the_answer_is_the_same_with_a_gradient_and_without(head):
    batch, network = shape_pairs(), small("rpmnet", head).double().eval()
    clouds = [each.double() for each in (batch.source, batch.target, batch.source_normals, batch.target_normals)]
    with_gradient = network(*clouds).T_target_source
    with torch.no_grad():
        torch.testing.assert_close(network(*clouds).T_target_source, with_gradient.detach(), atol=1e-9, rtol=0)


def test_features_of_point_pairs_alone_do_not_see_a_motion():
    batch, network = shape_pairs(), small("rpmnet", features=("ppf",), test_rounds=1)
    T = motions(4)
    source, target, source_normals, target_normals = inputs(batch)
    before = network(*inputs(batch)).rounds[0].extras["source_features"]
    after = network(se3.apply(T, source), target, se3.rotate(T, source_normals), target_normals)
    assert_close(after.rounds[0].extras["source_features"], before, rtol=0, atol=1e-9)


def test_a_perfect_pose_costs_only_what_rows_and_columns_lack():
    batch, network = shape_pairs(), small("rpmnet", test_rounds=1)
    alignment = network(*inputs(batch))
    match = alignment.rounds[0].match
    lacking = (1 - match.sum(1)).mean() + (1 - match.sum(2)).mean()
    for distance in ("mae", "mse"):
        loss = rpmnet_loss(alignment, batch.source, alignment.T_target_source, distance=distance)
        assert_close(loss, 0.01 * lacking)
    shifted = alignment.T_target_source.clone()
    shifted[:, 0, 3] += 0.3
    assert_close(rpmnet_loss(alignment, batch.source, shifted, outlier_weight=0.0).item(), 0.1)
    assert_close(rpmnet_loss(alignment, batch.source, shifted, outlier_weight=0.0, distance="mse").item(), 0.03)
    with pytest.raises(ValueError, match=r"distance must be one of \('mae', 'mse'\), got 'l1'"):
        rpmnet_loss(alignment, batch.source, shifted, distance="l1")


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="features must name some of"):
        RPMNetConfig(features=("colour",))
    with pytest.raises(ValueError, match="feature_dim must be a multiple of 8, got 20"):
        RPMNetConfig(feature_dim=20)
    with pytest.raises(ValueError, match=r"neighbor_radius must be positive and finite, got 0"):
        RPMNetConfig(neighbor_radius=0)
