"""Pairs: those of the published programs number by number, and the promises of our own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from torch.utils.data import DataLoader

from p2plane.data.pair import collate
from p2plane.data.pairs import PROTOCOLS, PUBLISHED, PairDataset, PairSettings
from p2plane.data.shape import Shape
from p2plane.evaluation import metrics
from p2plane.geometry import se3, so3
from p2plane.geometry.neighbors import knn

ORACLE = Path(__file__).parent.parent / "oracles" / "official_pairs.npz"
ROUNDING = 2.4e-7  # of a float32 between one and two


@pytest.fixture(scope="module")
def oracle():
    return dict(np.load(ORACLE))


@pytest.fixture(scope="module")
def shapes(oracle):
    arrays = zip(oracle["in_points"], oracle["in_normals"], strict=True)
    return [Shape(torch.from_numpy(points), torch.from_numpy(normals), 0, "oracle") for points, normals in arrays]


def made_up_shapes(count: int, points: int) -> list[Shape]:
    """Random directions, each a point and its own normal: no two rows are alike."""
    generator = torch.Generator().manual_seed(0)
    clouds = torch.nn.functional.normalize(torch.randn(count, points, 3, generator=generator), dim=-1)
    return [Shape(cloud, cloud, 0, "sphere") for cloud in clouds]


def distances(points: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """(N,) from each point to the nearest of the others."""
    return knn(points, others, 1).distances[:, 0]


def shared_rows(pair) -> int:
    """How many target points are source points, moved."""
    moved = se3.apply(pair.T_target_source, pair.source)
    return int((distances(pair.target, moved) < 1e-5).sum())


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize(("protocol", "key"), [("dcp", "dcp"), ("prnet", "prnet"), ("prnet-noisy", "prnet_noise")])
def test_test_pairs_of_dcp_and_prnet(oracle, shapes, protocol, key, index):
    pair = PairDataset(shapes, protocol)[index]
    assert_close(pair.source.T.numpy(), oracle[f"{key}_{index}_pc1"], rtol=0, atol=ROUNDING)
    assert_close(pair.target.T.numpy(), oracle[f"{key}_{index}_pc2"], rtol=0, atol=ROUNDING)
    assert_close(pair.T_target_source[:3, :3].numpy(), oracle[f"{key}_{index}_R_ab"], rtol=0, atol=ROUNDING)
    assert_close(pair.T_target_source[:3, 3].numpy(), oracle[f"{key}_{index}_t_ab"], rtol=0, atol=ROUNDING)
    angles = metrics.euler_angles_deg(pair.T_target_source.double()).deg2rad()
    assert_close(angles.numpy(), oracle[f"{key}_{index}_euler_ab"].astype(float), rtol=0, atol=1e-6)


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("kind", ["clean", "jitter", "crop"])
def test_test_pairs_of_rpmnet(oracle, shapes, kind, index):
    pair = PairDataset(shapes, f"rpmnet-{kind}", whole=True)[index]
    key = f"rpmnet_{kind}_{index}"
    source = torch.cat([pair.source, pair.source_normals], dim=1)
    target = torch.cat([pair.target, pair.target_normals], dim=1)
    assert_close(source.numpy(), oracle[f"{key}_points_src"], rtol=0, atol=ROUNDING)
    assert_close(target.numpy(), oracle[f"{key}_points_ref"], rtol=0, atol=ROUNDING)
    assert_close(pair.T_target_source[:3].numpy(), oracle[f"{key}_transform_gt"], rtol=0, atol=ROUNDING)
    assert_close(pair.whole.numpy(), oracle["in_points"][index])


@pytest.mark.parametrize("protocol", [*PROTOCOLS, *PUBLISHED])
def test_the_true_motion_brings_source_and_target_together(shapes, protocol):
    pair = PairDataset(shapes, protocol, whole=True)[2]
    moved = se3.apply(pair.T_target_source, pair.source)
    noisy = {"cpu-noisy", "cpu-noisy-so3", "prnet-noisy", "rpmnet-jitter", "rpmnet-crop"}
    within = 1e-5 if protocol not in noisy else 0.05 * 3**0.5 + 1e-5
    assert distances(moved, pair.whole).max() <= within
    assert distances(pair.target, pair.whole).max() <= within
    for normals in (pair.source_normals, pair.target_normals):
        length = normals.norm(dim=1)
        assert (((length - 1).abs() < 1e-5) | (length == 0)).all()


def test_true_normals_turn_with_the_target(shapes):
    pair = PairDataset(shapes, PairSettings(shared=1.0, crop="none"))[0]
    moved = se3.apply(pair.T_target_source, pair.source)
    partner = torch.cdist(moved, pair.target).argmin(1)
    assert_close(se3.rotate(pair.T_target_source, pair.source_normals), pair.target_normals[partner], rtol=0, atol=1e-5)


def test_cpu_shares_a_sixth_whatever_the_number_of_points_of_a_shape():
    for points in (1024, 2048):
        pairs = PairDataset(made_up_shapes(4, points), replace(PROTOCOLS["cpu"], crop="none"))
        share = np.mean([shared_rows(pairs[i]) / 1024 for i in range(4)])
        assert share == pytest.approx(1 / 6, abs=0.02)


def test_cpu_noisy_shares_no_point():
    settings = replace(PROTOCOLS["cpu-noisy"], noise=0.0, crop="none", normals="true")
    assert shared_rows(PairDataset(made_up_shapes(3, 1024), settings)[0]) == 0


def test_any_rotation_means_all_alike():
    pairs = PairDataset(made_up_shapes(400, 8), PairSettings(points=4, crop="none", any_rotation=True))
    R = torch.stack([pairs[i].T_target_source[:3, :3] for i in range(400)]).double()
    assert_close(R @ R.mT, torch.eye(3, dtype=torch.float64).expand(400, 3, 3), rtol=0, atol=1e-6)
    assert R.mean(0).abs().max() < 0.1  # their mean is zero
    angles = so3.log(R).norm(dim=-1)
    assert float(angles.mean()) == pytest.approx(np.pi / 2 + 2 / np.pi, abs=0.1)


def test_few_points_share_what_they_can():
    pair = PairDataset(made_up_shapes(1, 100), PairSettings(shared=0.0, crop="none"))[0]
    assert (len(pair.source), len(pair.target), shared_rows(pair)) == (50, 50, 0)


def test_a_viewpoint_crop_keeps_the_near_part_of_each_side():
    pairs = PairDataset(made_up_shapes(3, 2048), "modelnet40")
    for i in range(3):
        pair = pairs[i]
        assert (len(pair.source), len(pair.target)) == (768, 768)
        for points in (pair.source, pair.target):
            along = (points - points.mean(0)).sum(1)  # the view point lies along (1, 1, 1), one way or the other
            order = torch.arange(len(points), dtype=torch.float32)
            assert abs(torch.corrcoef(torch.stack([along, order]))[0, 1]) > 0.95


def test_motions_stay_in_their_range():
    pairs = PairDataset(
        made_up_shapes(50, 16), PairSettings(points=8, crop="none", max_angle_deg=30, max_translation=2)
    )
    T = torch.stack([pair.T_target_source for pair in (pairs[i] for i in range(50))]).double()
    angles = metrics.euler_angles_deg(T)
    assert 0 <= angles.min() < 5
    assert 25 < angles.max() <= 30
    assert 1.5 < T[:, :3, 3].abs().max() <= 2


def test_a_pair_depends_on_index_and_seed_alone(shapes):
    pairs = PairDataset(shapes, "cpu", seed=3)
    forwards = [pairs[i] for i in (0, 1, 2)]
    backwards = [PairDataset(shapes, "cpu", seed=3)[i] for i in (2, 1, 0)][::-1]
    for one, other in zip(forwards, backwards, strict=True):
        assert torch.equal(one.source, other.source)
        assert torch.equal(one.target_normals, other.target_normals)
    assert not torch.equal(pairs[0].source, PairDataset(shapes, "cpu", seed=4)[0].source)
    assert torch.equal(pairs[-1].source, pairs[2].source)


def test_a_test_pair_stays_what_it_was(shapes):
    """Results are compared over years: these numbers may change only on purpose."""
    pair = PairDataset(shapes, "cpu", seed=0)[1]
    T_target_source = [
        [0.7597895, -0.2076539, 0.6161168, -0.2098805],
        [0.4423073, 0.8596342, -0.2557211, 0.0856141],
        [-0.4765336, 0.4668071, 0.7449878, 0.2809373],
    ]
    source = [[-1.1287475, -0.3793058, -0.4617544], [-1.0086949, -0.4119359, -0.5271024]]
    assert_close(pair.T_target_source[:3], torch.tensor(T_target_source), rtol=0, atol=1e-6)
    assert_close(pair.source[:2], torch.tensor(source), rtol=0, atol=1e-6)


@pytest.mark.parametrize("protocol", ["cpu", "rpmnet-crop"])
def test_training_pairs_are_fresh_every_epoch_and_come_back_with_the_seed(shapes, protocol):
    pairs = PairDataset(shapes, protocol, fresh=True)
    first = pairs[0]
    pairs.set_epoch(1)
    second = pairs[0]
    pairs.set_epoch(0)
    assert not torch.equal(first.T_target_source, second.T_target_source)
    assert torch.equal(first.source, pairs[0].source)
    assert not torch.equal(first.T_target_source, PairDataset(shapes, protocol)[0].T_target_source)


def test_workers_give_the_same_pairs_and_hear_of_the_epoch(shapes):
    pairs = PairDataset(shapes, "modelnet40", fresh=True)
    loader = DataLoader(pairs, batch_size=2, num_workers=2, persistent_workers=True, collate_fn=collate)
    for epoch in (0, 1):
        pairs.set_epoch(epoch)
        batches = list(loader)
        assert [len(batch) for batch in batches] == [2, 1]
        assert torch.equal(batches[0].source[1], pairs[1].source)


def test_a_batch_pads_with_absent_points():
    pairs = [PairDataset(made_up_shapes(1, n), PairSettings(points=n, crop="none"), whole=True)[0] for n in (10, 30)]
    batch = collate(pairs)
    assert batch.source.shape == (2, 30, 3)
    assert batch.source_mask.sum(1).tolist() == [10, 30]
    assert batch.whole_mask.sum(1).tolist() == [10, 30]
    assert torch.equal(batch.target[0, :10], pairs[0].target)
    assert (batch.target[0, 10:] == 0).all()
    as_double = batch.to(torch.float64)
    assert (as_double.source.dtype, as_double.source_mask.dtype) == (torch.float64, torch.bool)


def test_flipped_normals_are_flipped_about_half_of_the_time(shapes):
    settings = PairSettings(crop="none", shared=1.0)
    kept = PairDataset(shapes, settings)[0].source_normals
    flipped = PairDataset(shapes, replace(settings, flip_normals=True))[0].source_normals
    agree = ((kept * flipped).sum(1) > 0).double().mean()
    assert 0.4 < agree < 0.6


def test_bad_settings_are_named(shapes):
    with pytest.raises(ValueError, match=r"crop must be one of .*, got 'sphere'"):
        PairSettings(crop="sphere")
    with pytest.raises(ValueError, match="keep must be at most points, 100, got 768"):
        PairSettings(points=100)
    with pytest.raises(ValueError, match="noise must not be negative, got -1"):
        PairSettings(noise=-1)
    with pytest.raises(ValueError, match="shared must be between 0 and 1, got 2"):
        PairSettings(shared=2)
    with pytest.raises(ValueError, match=r"protocol must be one of .*, got 'kitti'"):
        PairDataset(shapes, "kitti")
    with pytest.raises(ValueError, match="seed must be an integer"):
        PairDataset(shapes, seed=-1)
    with pytest.raises(IndexError, match="index must be between -3 and 2, got 3"):
        PairDataset(shapes)[3]
    with pytest.raises(ValueError, match="epoch must not be negative"):
        PairDataset(shapes).set_epoch(-1)
    with pytest.raises(ValueError, match="pairs must hold at least one pair"):
        collate([])
