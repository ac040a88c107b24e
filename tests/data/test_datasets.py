"""ModelNet40, ICL-NUIM and a user's own folder, small ones made here and the real ones where they are."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from p2plane.data.folder import CloudFolder
from p2plane.data.iclnuim import IclNuim, IclNuimPairs
from p2plane.data.io import save_cloud
from p2plane.data.locate import DataNotFoundError
from p2plane.data.modelnet import HDF5, RESAMPLED, ModelNet40
from p2plane.data.pairs import PairDataset, PairSettings, train_and_test
from p2plane.data.synthetic import SyntheticShapes
from p2plane.geometry import se3
from tests.data.real import ROOT, needs

NAMES = ["airplane", "bathtub", "bed"]


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """No test finds data that it did not name."""
    monkeypatch.delenv("P2PLANE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def directions(count: int, seed: int) -> np.ndarray:
    rows = np.random.RandomState(seed).standard_normal((count, 3))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def write_hdf5(root, split="train", shapes=4, points=30):
    """The archive's layout with made-up shapes; the second file is listed first, and one point is marked."""
    folder = root / HDF5
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shape_names.txt").write_text("\n".join(NAMES) + "\n")
    files = [f"data/{HDF5}/ply_data_{split}{k}.h5\n" for k in (1, 0)]  # as in the archive, with a folder in front
    (folder / f"{split}_files.txt").write_text("".join(files))
    for k in (0, 1):
        normals = np.stack([directions(points, 10 * k + i) for i in range(shapes)])
        normals[0, 0] = 1
        with h5py.File(folder / f"ply_data_{split}{k}.h5", "w") as file:
            file["data"], file["normal"] = normals * 0.5 + k, 3 * normals
            file["label"] = np.arange(shapes, dtype=np.uint8)[:, None] % 3
        with h5py.File(folder / f"ply_data_{split}{k}.h5", "r+") as file:
            file["normal"][0, 0] = 1
    return folder


def test_hdf5_files_come_in_the_order_of_the_list(tmp_path):
    write_hdf5(tmp_path)
    dataset = ModelNet40("train", root=tmp_path)
    assert len(dataset) == 8
    assert dataset.names == NAMES
    assert dataset.labels.tolist() == [0, 1, 2, 0, 0, 1, 2, 0]
    assert_close(dataset[1].points.mean(), torch.tensor(1.0), rtol=0, atol=0.2)  # of the file 1, which is listed first
    assert (dataset[1].label, dataset[1].name) == (1, "bathtub")
    assert torch.equal(dataset[-1].points, dataset[7].points)


def test_normals_have_unit_length_and_marked_points_are_left_out(tmp_path):
    write_hdf5(tmp_path)
    dataset = ModelNet40("train", root=tmp_path)
    assert (len(dataset[0]), len(dataset[1])) == (29, 30)
    for shape in dataset:
        assert_close(shape.normals.norm(dim=1), torch.ones(len(shape)))


def test_categories_restrict_and_labels_stay(tmp_path):
    write_hdf5(tmp_path)
    dataset = ModelNet40("train", root=tmp_path, categories=["bed"])
    assert dataset.labels.tolist() == [2, 2]
    assert dataset[0].name == "bed"
    with pytest.raises(ValueError, match="categories must be some of"):
        ModelNet40("train", root=tmp_path, categories=["dragon"])


def test_resampled_text_files_are_read_too(tmp_path):
    folder = tmp_path / RESAMPLED
    (folder / "bed").mkdir(parents=True)
    (folder / "modelnet40_shape_names.txt").write_text("\n".join(NAMES))
    (folder / "modelnet40_test.txt").write_text("bed_0002\nbed_0001\n")
    rows = {
        name: np.hstack([directions(20, i), directions(20, i + 5)]) for i, name in enumerate(("bed_0001", "bed_0002"))
    }
    for name, array in rows.items():
        np.savetxt(folder / "bed" / f"{name}.txt", array, delimiter=",")
    dataset = ModelNet40("test", root=tmp_path, points=7)
    assert dataset.labels.tolist() == [2, 2]
    assert_close(dataset[0].points.numpy(), rows["bed_0002"][:7, :3], rtol=0, atol=1e-6)
    assert_close(dataset[0].normals.numpy(), rows["bed_0002"][:7, 3:], rtol=0, atol=1e-6)


def test_data_is_found_by_argument_then_variable_then_cache(tmp_path, monkeypatch):
    with pytest.raises(DataNotFoundError, match="p2plane data download modelnet40"):
        ModelNet40("train")
    cached = write_hdf5(tmp_path / "cache" / "p2plane")
    assert ModelNet40("train").folder == cached
    named_by_variable = write_hdf5(tmp_path / "variable")
    monkeypatch.setenv("P2PLANE_DATA", str(tmp_path / "variable"))
    assert ModelNet40("train").folder == named_by_variable
    own = write_hdf5(tmp_path / "own")
    assert ModelNet40("train", root=tmp_path / "own").folder == own
    assert ModelNet40("train", root=own).folder == own


def test_what_is_missing_or_wrong_is_named(tmp_path):
    with pytest.raises(ValueError, match="split must be 'train' or 'test', got 'valid'"):
        ModelNet40("valid")
    folder = write_hdf5(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"test_files\.txt must be in"):
        ModelNet40("test", root=tmp_path)
    with h5py.File(folder / "ply_data_train0.h5", "r+") as file:
        del file["normal"]
    with pytest.raises(ValueError, match=r"must hold data, normal and label, got \['data', 'label'\]"):
        ModelNet40("train", root=tmp_path)
    (folder / "ply_data_train1.h5").unlink()
    with pytest.raises(FileNotFoundError, match=r"ply_data_train1\.h5 must be there"):
        ModelNet40("train", root=tmp_path)


def test_frames_are_centred_scaled_and_get_normals(tmp_path):
    folder = tmp_path / "icl_nuim"
    folder.mkdir()
    grid = np.stack(np.meshgrid(np.linspace(0, 3, 20), np.linspace(0, 2, 20)), -1).reshape(-1, 2)
    frame = np.hstack([grid, np.full((400, 1), 2.0)]).astype(np.float32)  # a wall two metres away
    with h5py.File(folder / "icl_nuim_train.h5", "w") as file:
        file["points"] = np.stack([frame, frame + 1])
    dataset = IclNuim("train", root=tmp_path)
    assert len(dataset) == 2
    for shape in dataset:
        assert_close(shape.points.mean(0), torch.zeros(3), rtol=0, atol=1e-5)
        assert_close(shape.points.norm(dim=1).max(), torch.tensor(1.0))
        assert_close(shape.normals[:, 2].abs(), torch.ones(400), rtol=0, atol=1e-4)
    with pytest.raises(FileNotFoundError, match=r"must hold \*_test\.h5"):
        IclNuim("test", root=tmp_path)


def test_fixed_pairs_of_deepgmr(tmp_path):
    T = se3.random(2, generator=torch.Generator().manual_seed(0))
    source = torch.from_numpy(np.stack([directions(50, 0), directions(50, 1)]))
    with h5py.File(tmp_path / "icl_nuim_test.h5", "w") as file:
        file["source"], file["target"], file["transform"] = source, se3.apply(T, source), T
    pairs = IclNuimPairs(root=tmp_path)
    assert len(pairs) == 2
    pair = pairs[1]
    assert_close(se3.apply(pair.T_target_source, pair.source), pair.target, rtol=0, atol=1e-5)
    radial = torch.nn.functional.normalize(pair.source - pair.source.mean(0), dim=1)
    assert (pair.source_normals * radial).sum(1).abs().median() > 0.8
    with pytest.raises(ValueError, match=r"must hold points, got \['source', 'target', 'transform'\]"):
        IclNuim("test", root=tmp_path)


def test_a_folder_of_clouds_and_meshes_is_a_data_set(tmp_path):
    for i in range(24):
        (tmp_path / f"kind{i % 2}").mkdir(exist_ok=True)
        save_cloud(tmp_path / f"kind{i % 2}" / f"scan{i}.ply", torch.from_numpy(5 + 3 * directions(400, i)))
    (tmp_path / "kind0" / "pyramid.off").write_text(
        "OFF\n4 4 0\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n3 0 2 1\n3 0 1 3\n3 1 2 3\n3 2 0 3\n"
    )
    (tmp_path / "notes.md").write_text("not a cloud")
    train, test = (CloudFolder(tmp_path, split, points=300) for split in ("train", "test"))
    everything = CloudFolder(tmp_path, "all", points=300)
    assert len(everything) == 25
    assert sorted(train.files + test.files) == sorted(everything.files)
    assert everything.names == ["kind0", "kind1"]
    for shape in everything:
        assert len(shape) == 300
        assert_close(shape.points.norm(dim=1).max(), torch.tensor(1.0))
        assert_close(shape.normals.norm(dim=1), torch.ones(300), rtol=0, atol=1e-4)
    pair = PairDataset(train, PairSettings(points=128, keep=96), fresh=True)[0]
    assert pair.source.shape == (96, 3)


def test_a_file_added_later_moves_no_other(tmp_path):
    for i in range(10):
        save_cloud(tmp_path / f"{i}.xyz", torch.from_numpy(directions(30, i)))
    before = CloudFolder(tmp_path, "test").files
    save_cloud(tmp_path / "0a.xyz", torch.from_numpy(directions(30, 99)))
    assert set(before) <= set(CloudFolder(tmp_path, "test").files)


def test_folders_named_train_and_test_are_the_splits(tmp_path):
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        save_cloud(tmp_path / split / "a.xyz", torch.from_numpy(directions(30, 0)))
    assert [path.parent.name for path in CloudFolder(tmp_path, "test").files] == ["test"]
    with pytest.raises(FileNotFoundError, match="root must be a folder"):
        CloudFolder(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="must hold clouds or meshes"):
        CloudFolder(tmp_path / "empty")


def test_synthetic_shapes_make_pairs_like_any_data_set():
    seen, unseen = train_and_test(SyntheticShapes("train").names)
    assert (len(seen), len(unseen), set(seen) & set(unseen)) == (20, 20, set())
    pairs = PairDataset(SyntheticShapes("test", categories=unseen, shapes_per_category=1), "cpu")
    assert len(pairs) == 20
    assert pairs[3].source.shape == (768, 3)


@needs(HDF5)
def test_the_real_modelnet40_is_all_there():
    train, test = ModelNet40("train", root=ROOT), ModelNet40("test", root=ROOT)
    assert (len(train), len(test)) == (9843, 2468)
    assert (len(train.names), train.names[0], train.names[-1]) == (40, "airplane", "xbox")
    seen, unseen = train_and_test(train.names)
    assert len(ModelNet40("train", root=ROOT, categories=seen)) == 5114
    assert len(ModelNet40("test", root=ROOT, categories=unseen)) == 1266
    shortened, left_out = 0, 0
    for dataset, points in ((train, 1024), (test, 2048)):
        for shape in dataset:
            shortened, left_out = shortened + (len(shape) < points), left_out + points - len(shape)
            assert points - 100 < len(shape) <= points
            assert (shape.normals.norm(dim=1) - 1).abs().max() < 1e-5
    assert (shortened, left_out) == (330, 663)


@needs("icl_nuim")
def test_the_real_frames_of_icl_nuim_are_all_there():
    assert (len(IclNuim("train", root=ROOT)), len(IclNuim("test", root=ROOT))) == (170, 41)
    shape = IclNuim("test", root=ROOT)[0]
    assert shape.points.shape == (4096, 3)
    assert (shape.normals.norm(dim=1) > 0.5).double().mean() > 0.95
