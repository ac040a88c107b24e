"""DeepGMR and its rotation-invariant features, against the published program and on clouds with known answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from p2plane import se3, so3
from p2plane.networks.comparison_losses import deepgmr_loss
from p2plane.networks.deepgmr import DeepGMR, DeepGMRConfig, fit_mixture, register_mixtures
from p2plane.networks.published import import_published
from p2plane.networks.rri import rri_features
from tests.clouds import matched_pair, surface
from tests.oracles.recipe import fill

ORACLE = Path(__file__).parents[1] / "oracles" / "deepgmr.npz"
SMALL = {"encoder_widths": (16, 32, 64), "decoder_widths": (32, 16), "components": 8}
BOTH = pytest.mark.parametrize("features", ["rri", "xyz"])


def small(features: str, *, dtype: torch.dtype = torch.float64, **settings) -> DeepGMR:
    torch.manual_seed(0)
    network = DeepGMR(DeepGMRConfig(features=features, **(SMALL | settings))).to(dtype).eval()
    with torch.no_grad():
        for logits in network.backbone.decoder[-1].parameters():
            logits *= 20  # so that components differ
    return network


def oracle() -> dict[str, torch.Tensor]:
    with np.load(ORACLE) as file:
        return {name: torch.from_numpy(np.asarray(file[name])) for name in file}


def as_published(features: str, seed: int) -> DeepGMR:
    """With the weights of the oracle, which come in the shapes of convolutions."""
    network = DeepGMR(DeepGMRConfig(features=features, orientation="numpy")).double().eval()
    shapes = {
        name: (*each.shape, 1) if each.ndim == 2 else tuple(each.shape) for name, each in network.state_dict().items()
    }
    weights = {name: torch.from_numpy(np.asarray(array)) for name, array in fill(shapes, seed).items()}
    import_published(network, weights)
    return network


@BOTH
def test_the_answer_is_that_of_the_published_program(features):
    expected = oracle()
    network = as_published(features, int(expected["seed"]))
    alignment = network(expected["in_src"], expected["in_tgt"])
    extras = alignment.rounds[0].extras
    T = se3.from_rotation_translation(expected["in_R"], expected["in_t"])
    assert_close(alignment.T_target_source, expected[f"{features}_T_12"], rtol=0, atol=1e-9)
    assert_close(extras["mu_source"], expected[f"{features}_mu1"], rtol=0, atol=1e-9)
    assert_close(extras["gamma_source"].float(), expected[f"{features}_gamma1"], rtol=0, atol=1e-5)
    assert_close(deepgmr_loss(alignment, T), expected[f"{features}_loss"], rtol=0, atol=1e-9)


def test_rri_features_are_those_of_the_published_program():
    expected = oracle()
    features = rri_features(expected["in_src"], orientation="numpy")
    assert_close(features.float(), expected["rri_features_src"], rtol=0, atol=1e-5)


def test_the_two_orientations_of_phi_see_each_other_in_a_mirror():
    points, _ = surface(2, generator=torch.Generator().manual_seed(0))
    mirrored = points * torch.tensor([1.0, 1.0, -1.0], dtype=points.dtype)
    assert_close(rri_features(points, orientation="kernel"), rri_features(mirrored, orientation="numpy"))


def test_phi_is_the_turn_from_a_neighbour_to_the_next_or_back():
    turns = torch.tensor([0.0, 0.5, 1.5, 3.5], dtype=torch.float64)
    radii = torch.tensor([0.10, 0.11, 0.12, 0.13], dtype=torch.float64)  # on the unit sphere, the nearest first
    around = torch.stack([radii * turns.cos(), radii * turns.sin(), (1 - radii.square()).sqrt()], dim=-1)
    pole = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
    cloud = torch.cat([pole, around, -pole, -around])[None]  # with the origin for a mean
    gaps = torch.tensor([0.5, 1.0, 2.0, 2 * torch.pi - 3.5], dtype=torch.float64)
    for orientation, expected in (("kernel", gaps), ("numpy", gaps.roll(1))):
        phi = rri_features(cloud, k=4, orientation=orientation)[0, 0].view(4, 4)[:, 3]
        assert_close(phi, expected)


@pytest.mark.parametrize("orientation", ["kernel", "numpy"])
def test_rri_features_do_not_change_when_the_cloud_moves(orientation):
    points, _ = surface(3, generator=torch.Generator().manual_seed(1))
    T = se3.random(3, generator=torch.Generator().manual_seed(2), dtype=points.dtype)
    moved = rri_features(se3.apply(T, points), orientation=orientation)
    assert_close(moved, rri_features(points, orientation=orientation), rtol=0, atol=1e-9)


@pytest.mark.parametrize("count", [1, 2, 8, 21])
def test_a_small_cloud_repeats_its_neighbours(count):
    points, _ = surface(2, points=count, generator=torch.Generator().manual_seed(3))
    features = rri_features(points).unflatten(-1, (20, 4))
    assert features.isfinite().all()
    ranks = torch.arange(20) % max(1, count - 1)
    assert_close(features, features[:, :, ranks])


def test_equal_shares_on_both_sides_give_the_exact_motion():
    pair = matched_pair(4, seed=5)
    gamma = torch.randn(4, 64, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64).softmax(-1)
    source, target = fit_mixture(pair.source, gamma), fit_mixture(pair.target, gamma)
    assert_close(register_mixtures(source, target), pair.T_target_source)
    assert_close(register_mixtures(target, source), se3.inverse(pair.T_target_source))


def test_a_moved_cloud_is_found_with_features_that_do_not_move():
    pair = matched_pair(3, points=100, seed=6)
    order = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    alignment = small("rri")(pair.source, pair.target[:, order])
    assert_close(alignment.T_target_source, pair.T_target_source, rtol=0, atol=1e-6)
    assert_close(alignment.rounds[0].extras["T_reverse"], se3.inverse(pair.T_target_source), rtol=0, atol=1e-6)
    assert alignment.converged.all()
    assert (alignment.residuals < 1e-6).all()


@BOTH
def test_the_order_of_points_does_not_matter(features):
    pair, network = matched_pair(2, points=50, noise=0.05, seed=7), small(features)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    before, after = network(pair.source, pair.target), network(pair.source[:, order], pair.target[:, order.flip(0)])
    assert_close(after.T_target_source, before.T_target_source, rtol=0, atol=1e-9)


@BOTH
@pytest.mark.parametrize("training", [False, True])
def test_padding_by_mask_changes_nothing(features, training):
    pair = matched_pair(2, points=40, noise=0.05, seed=8)
    source = torch.cat([pair.source, torch.full((2, 5, 3), float("nan"), dtype=torch.float64)], dim=1)
    mask = torch.arange(45).expand(2, 45) < 40
    networks = [small(features).train(training) for _ in range(2)]
    plain = networks[0](pair.source, pair.target)
    padded = networks[1](source, pair.target, source_mask=mask)
    assert_close(padded.T_target_source, plain.T_target_source, rtol=0, atol=1e-9)
    extras, padded_extras = plain.rounds[0].extras, padded.rounds[0].extras
    assert_close(padded_extras["gamma_source"][:, :40], extras["gamma_source"])
    assert (padded_extras["gamma_source"][:, 40:] == 0).all()
    for name, buffer in networks[0].named_buffers():
        assert_close(dict(networks[1].named_buffers())[name], buffer)


@BOTH
@pytest.mark.parametrize("case", ["eight points", "identical", "coincident", "collinear", "other number", "one point"])
def test_hard_clouds_give_finite_answers_and_gradients(features, case):
    pair, network = matched_pair(2, points=30, seed=9, dtype=torch.float32), small(features, dtype=torch.float32)
    source, target = {
        "eight points": (pair.source[:, :8], pair.target[:, :8]),
        "identical": (pair.source, pair.source),
        "coincident": (pair.source[:, :1].expand(2, 30, 3), pair.target),
        "collinear": (pair.source[:, :, :1].expand(2, 30, 3), pair.target),
        "other number": (pair.source[:, :13], pair.target),
        "one point": (pair.source[:, :1], pair.target[:, :1]),
    }[case]
    source = source.clone().requires_grad_()
    alignment = network(source, target)
    assert alignment.T_target_source.isfinite().all()
    deepgmr_loss(alignment, pair.T_target_source).backward()
    assert source.grad.isfinite().all()
    assert all(each.grad.isfinite().all() for each in network.parameters() if each.grad is not None)
    if case == "identical":
        assert_close(alignment.T_target_source, torch.eye(4).expand(2, 4, 4), rtol=0, atol=1e-5)


def test_a_component_without_points_and_one_of_a_single_point_do_no_harm():
    pair = matched_pair(1, points=20, seed=10)
    gamma = torch.zeros(1, 20, 4, dtype=torch.float64)
    gamma[:, 0, 0] = gamma[:, 1:9, 1] = gamma[:, 9:, 2] = 1.0
    source, target = fit_mixture(pair.source, gamma), fit_mixture(pair.target, gamma)
    assert_close(register_mixtures(source, target), pair.T_target_source)


def test_a_component_that_only_one_side_has_does_no_harm():
    pair = matched_pair(1, points=20, seed=10)
    gamma = torch.zeros(1, 20, 5, dtype=torch.float64)
    gamma[:, :5, 0] = gamma[:, 5:10, 1] = gamma[:, 10:16, 2] = gamma[:, 16:, 3] = 1.0
    stray = torch.cat([gamma, gamma.new_tensor([[[0.0, 0.0, 0.0, 0.0, 1.0]]])], dim=1)
    source = fit_mixture(torch.cat([pair.source, pair.source[:, :1] + 3], dim=1), stray)
    target = fit_mixture(pair.target, gamma)
    assert_close(register_mixtures(source, target), pair.T_target_source)


def test_the_gradient_of_the_closed_form_is_that_of_finite_differences():
    pair = matched_pair(1, points=12, noise=0.3, seed=11)
    logits = torch.randn(2, 1, 12, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def pose(source, logits_source, logits_target):
        return register_mixtures(
            fit_mixture(source, logits_source.softmax(-1)), fit_mixture(pair.target, logits_target.softmax(-1))
        )

    inputs = tuple(each.clone().requires_grad_() for each in (pair.source, logits[0], logits[1]))
    assert torch.autograd.gradcheck(pose, inputs, atol=1e-6)


def test_the_small_network_turns_coordinates_and_trains():
    pair = matched_pair(3, points=30, noise=0.05, seed=12)
    network = small("xyz", tnet=True)
    R = network.backbone.tnet(pair.source, None)
    assert_close(R @ R.mT, torch.eye(3, dtype=torch.float64).expand(3, 3, 3))
    assert_close(torch.linalg.det(R), torch.ones(3, dtype=torch.float64))
    deepgmr_loss(network.train()(pair.source, pair.target), pair.T_target_source).backward()
    assert all(each.grad is not None and each.grad.isfinite().all() for each in network.parameters())


@BOTH
def test_training_lowers_the_loss(features):
    torch.manual_seed(0)
    network = DeepGMR(DeepGMRConfig(features=features, **SMALL))
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(13)
    points, _ = surface(8, points=64, generator=generator, dtype=torch.float32)
    losses = []
    for _ in range(50):
        R = so3.exp(0.5 * torch.randn(8, 3, generator=generator))
        T = se3.from_rotation_translation(R, 0.3 * torch.randn(8, 3, generator=generator))
        target = se3.apply(T, points) + 0.01 * torch.randn(points.shape, generator=generator)
        loss = deepgmr_loss(network(points, target), T)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    losses = torch.stack(losses)
    assert losses.isfinite().all()
    assert losses[-10:].mean() < 0.8 * losses[:10].mean()


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match=r"features must be one of \('rri', 'xyz'\), got 'fpfh'"):
        DeepGMRConfig(features="fpfh")
    with pytest.raises(ValueError, match="tnet must go with features='xyz', got 'rri'"):
        DeepGMRConfig(tnet=True)
    with pytest.raises(ValueError, match="components must be at least 1, got 0"):
        DeepGMRConfig(components=0)
    with pytest.raises(ValueError, match="source must have at least 1 points in every cloud, got 0"):
        small("xyz")(torch.zeros(1, 0, 3, dtype=torch.float64), torch.zeros(1, 4, 3, dtype=torch.float64))
