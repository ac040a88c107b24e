"""The head: matched pairs in, pose out, by points or by planes."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from p2plane import point_to_plane, point_to_point, se3
from p2plane.networks.head import HeadConfig, pose_from_match
from p2plane.solve.alignment import alignment_at
from tests.clouds import matched_pair

PLANE_HEADS = [
    HeadConfig("plane"),
    HeadConfig("plane", normals="eigenvector"),
    HeadConfig("plane", point_share=0.1),
    HeadConfig("plane", normals="eigenvector", point_share=0.1),
    HeadConfig("plane", gradient="penalty"),
    HeadConfig("plane", normals="eigenvector", gradient="unrolled"),
]


def shuffled_pair(noise: float = 0.0):
    """A pair whose target is in another order, and the match that undoes it."""
    pair = matched_pair(2, points=40, noise=noise, seed=3)
    T = se3.exp(0.3 * torch.randn(2, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    T_moved_target = T @ se3.inverse(pair.T_target_source)  # near enough for the paper's steps from the identity
    target, normals = se3.apply(T_moved_target, pair.target), se3.rotate(T_moved_target, pair.normals)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    match = torch.zeros(2, 40, 40, dtype=torch.float64)
    match[:, order, torch.arange(40)] = 1.0
    return match, pair.source, target[:, order], normals[:, order], T


@pytest.mark.parametrize("config", [HeadConfig("point"), *PLANE_HEADS], ids=repr)
def test_every_head_finds_the_motion_of_a_right_match(config):
    match, source, target, normals, T = shuffled_pair()
    alignment, matched = pose_from_match(config, match, source, target, normals)
    assert_close(alignment.T_target_source, T, rtol=0, atol=1e-6)
    assert_close(matched, se3.apply(T, source))


@pytest.mark.parametrize("config", [HeadConfig("point"), *PLANE_HEADS], ids=repr)
def test_gradients_reach_the_match_and_are_finite(config):
    match, source, target, normals, _ = shuffled_pair(noise=0.01)
    logits = (8 * match).requires_grad_()
    alignment, _ = pose_from_match(config, logits.softmax(-1), source, target, normals)
    alignment.T_target_source[:, :3].square().sum().backward()
    assert logits.grad.isfinite().all()
    alignment.t.sum()  # still there after backward
    assert logits.grad.abs().max() > 0


def test_a_one_hot_match_gives_the_plain_distances():
    match, source, target, normals, _ = shuffled_pair(noise=0.02)
    partners = match.argmax(-1)[..., None].expand(-1, -1, 3)
    target_rows, normal_rows = target.gather(1, partners), normals.gather(1, partners)
    by_planes, _ = pose_from_match(HeadConfig("plane"), match, source, target, normals)
    assert_close(by_planes.T_target_source, point_to_plane(source, target_rows, normal_rows).T_target_source)
    by_points, _ = pose_from_match(HeadConfig("point"), match, source, target, None)
    assert_close(by_points.T_target_source, point_to_point(source, target_rows).T_target_source)


def test_a_large_point_share_is_point_to_point():
    match, source, target, normals, _ = shuffled_pair(noise=0.02)
    mixed, _ = pose_from_match(HeadConfig("plane", point_share=1e6), match, source, target, normals)
    points, _ = pose_from_match(HeadConfig("point"), match, source, target, None)
    assert_close(mixed.T_target_source, points.T_target_source, rtol=0, atol=1e-6)


def test_a_pose_from_elsewhere_has_the_uncertainty_of_its_pairs():
    pair = matched_pair(2, noise=0.01, seed=1)
    solved = point_to_plane(pair.source, pair.target, pair.normals, pair.weights)
    given = alignment_at(solved.T_target_source, pair.source, pair.target, pair.normals, pair.weights)
    assert_close(given.energy, solved.energy)
    assert_close(given.covariance, solved.covariance)
    assert given.converged.all()


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match=r"head must be one of \('point', 'plane'\), got 'line'"):
        HeadConfig("line")
    with pytest.raises(ValueError, match="point_share must not be negative, got -1"):
        HeadConfig("plane", point_share=-1)
    with pytest.raises(ValueError, match="gradient='unrolled' must go with normals='eigenvector'"):
        HeadConfig("plane", gradient="unrolled")
