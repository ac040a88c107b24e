"""PRNet against the published program, against itself written down plainly, and its switches."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.testing import assert_close

from p2plane import se3
from p2plane.networks.head import HeadConfig
from p2plane.networks.prnet import PRNet, PRNetConfig, TemperatureNet
from p2plane.training.losses import motion_loss, prnet_loss
from tests.networks import plain
from tests.networks.oracle import assert_all_close, clouds, oracle, with_oracle_weights
from tests.networks.small import inputs, shape_pairs, small


def test_the_answer_is_that_of_the_published_program():
    expected = oracle("prnet")
    config = PRNetConfig(keypoints=int(expected["n_keypoints"]), test_rounds=int(expected["n_iters"]))
    network = with_oracle_weights(PRNet(config), expected["seed"])
    source, target, *_ = clouds(expected)
    with torch.no_grad():
        alignment = network(source, target)
    assert_close(alignment.R, expected["R"], rtol=0, atol=1e-9)
    assert_close(alignment.t, expected["t"], rtol=0, atol=1e-9)
    assert_close(prnet_loss(alignment, expected["T_true"]), expected["total"], rtol=0, atol=1e-9)
    for i, each in enumerate(alignment.rounds):
        step, back = each.extras["T_step"], each.extras["T_step_reverse"]
        assert_close(step[:, :3, :3], expected["R_steps"][i], rtol=0, atol=1e-9)
        assert_close(step[:, :3, 3], expected["t_steps"][i], rtol=0, atol=1e-9)
        assert_close(back[:, :3, :3], expected["R_ba_steps"][i], rtol=0, atol=1e-9)
        assert_close(each.extras["temperature"], expected["temperature"][i], rtol=0, atol=1e-9)
        disparity, motion = each.extras["disparity"].mean(), motion_loss(each.T_target_source, expected["T_true"])
        assert_close(0.9**i * motion, expected["motion"][i], rtol=0, atol=1e-9)
        assert_close(0.9**i * 0.1 * disparity, expected["feat"][i], rtol=0, atol=1e-9)


@pytest.mark.parametrize("training", [True, False])
def test_values_gradients_and_statistics_are_those_of_the_plain_version(training):
    batch = shape_pairs()
    ours = small("prnet", sample_in_training=False).train(training)
    theirs = copy.deepcopy(ours)
    answers = []
    for network in (ours, theirs):
        source, target = (each.clone().requires_grad_() for each in (batch.source, batch.target))
        if network is ours:
            alignment = network(source, target)
            assert min(len(rows.unique()) for each in alignment.rounds for rows in each.match.argmax(-1)) > 3
            T, loss = alignment.T_target_source, prnet_loss(alignment, batch.T_target_source)
        else:
            T, loss = plain.prnet(network, source, target, batch.T_target_source, rounds=2)
        loss.backward()
        answers.append([T, loss, source.grad, target.grad, *(each.grad for each in network.parameters())])
    assert_all_close(*answers)
    assert_close(dict(ours.named_buffers()), dict(theirs.named_buffers()))


@pytest.mark.parametrize("head", ["point", "plane"])
def test_steps_compose_to_the_pose(head):
    batch = shape_pairs()
    rounds = small("prnet", head, test_rounds=3)(*inputs(batch)).rounds
    T = torch.eye(4, dtype=torch.float64).expand(4, 4, 4)
    for each in rounds:
        T = each.extras["T_step"] @ T
        assert_close(each.T_target_source, T)


@pytest.mark.parametrize("gradient", ["exact", "penalty"])
def test_the_plane_head_moves_on_from_where_it_is(gradient):
    """One round more is the same as one round on the moved source, whatever the solver's steps."""
    batch = shape_pairs()
    head = HeadConfig("plane", point_share=1.0, gradient=gradient)  # with a single minimum
    source, target, source_normals, target_normals = inputs(batch)
    both = small("prnet", head)(*inputs(batch))
    T = both.rounds[0].T_target_source
    moved = se3.apply(T, source), target, se3.rotate(T, source_normals), target_normals
    once_more = small("prnet", head, test_rounds=1)(*moved)
    assert_close(both.rounds[1].extras["T_step"], once_more.T_target_source, rtol=0, atol=1e-6)


def test_matches_are_drawn_in_training_and_where_it_is_asked_for():
    batch = shape_pairs()

    def rows(network, seed):
        alignment = network(*inputs(batch), generator=torch.Generator().manual_seed(seed))
        return alignment.rounds[0].match.argmax(-1)

    still = small("prnet")
    assert torch.equal(rows(still, 0), rows(still, 1))
    for drawing in (small("prnet", sample_in_evaluation=True), small("prnet").train()):
        first, again, other = rows(drawing, 0), rows(drawing, 0), rows(drawing, 1)
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


def test_training_and_evaluation_have_their_own_numbers_of_rounds():
    batch, network = shape_pairs(), small("prnet", train_rounds=1, test_rounds=3)
    assert len(network(*inputs(batch)).rounds) == 3
    assert len(network.train()(*inputs(batch)).rounds) == 1


def test_the_temperature_stays_between_its_bounds():
    net = TemperatureNet(4, 3, factor=10.0).double().eval()
    with torch.no_grad():
        for bias, expected in ((-100.0, 0.1), (100.0, 10.0)):
            net.nn[9].bias.fill_(bias)
            temperature, disparity = net(torch.ones(2, 4).double(), torch.zeros(2, 4).double())
            assert_close(temperature, torch.full((2, 1), expected, dtype=torch.float64))
            assert_close(disparity, torch.ones(2, 4).double())


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="keypoints must be at least 1, got 0"):
        PRNetConfig(keypoints=0)
    with pytest.raises(ValueError, match=r"temperature_factor must be at least 1, got 0\.5"):
        PRNetConfig(temperature_factor=0.5)
