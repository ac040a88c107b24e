"""NPY and NPZ files, and KITTI scans."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from p2plane.data.cloud import Cloud
from p2plane.data.io import CloudFileError, load_cloud, save_cloud
from tests.data.mutations import little_memory
from tests.data.samples import cloud


def npy(table: np.ndarray) -> bytes:
    """The bytes of an NPY file."""
    file = io.BytesIO()
    np.save(file, table)
    return file.getvalue()


def lying_npy(shape: str, kind: str = "<f8") -> bytes:
    """An NPY file of 24 bytes of numbers that claims another shape."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(24)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8", "<i4", "<f2"])
def test_tables(order, dtype, tmp_path):
    np.save(tmp_path / "cloud.npy", np.array([[1, 2, 3], [4, 5, 6]], dtype, order=order))
    found = load_cloud(tmp_path / "cloud.npy")
    assert found.points.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert found.points.dtype == (torch.float32 if dtype[1:] in ("f4", "f2") else torch.float64)


def test_four_and_six_columns(tmp_path):
    np.save(tmp_path / "cloud.npy", np.array([[1, 2, 3, 0.5]]))
    assert load_cloud(tmp_path / "cloud.npy").fields["intensity"].tolist() == [0.5]
    np.save(tmp_path / "cloud.npy", np.array([[1, 2, 3, 0, 0, -1]]))
    assert load_cloud(tmp_path / "cloud.npy").normals.tolist() == [[0, 0, -1]]


def test_arrays_by_name(tmp_path):
    colors, label = np.array([[255, 51, 0]], np.uint8), np.array([7], np.uint64)
    np.savez(tmp_path / "cloud.npz", points=np.ones((1, 3)), colors=colors, label=label, matrix=np.eye(4), text="a")
    found = load_cloud(tmp_path / "cloud.npz")
    assert_close(found.colors, torch.tensor([[1, 0.2, 0]]))
    assert {name: values.tolist() for name, values in found.fields.items()} == {"label": [7]}


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_pickles_are_never_opened(suffix, tmp_path):
    table = np.array([[print, 1, 2]], dtype=object)
    path = tmp_path / f"cloud{suffix}"
    np.save(path, table, allow_pickle=True) if suffix == ".npy" else np.savez(path, points=table)
    with pytest.raises(CloudFileError, match="expected the header of a plain array of numbers"):
        load_cloud(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected a file that begins with"),
        (npy(np.zeros((2, 3)))[:-1], "expected 48 bytes for an array of shape \\(2, 3\\), got 47"),
        (lying_npy("(1000000000000, 3)"), "expected 24000000000000 bytes for an array"),
        (lying_npy("(-1, 3)"), "expected the header of a plain array"),
        (lying_npy("(1, 3)", "|O"), "expected the header of a plain array"),
        (lying_npy("(0, 9999999999999999999999)"), "expected a table"),
        (npy(np.zeros(3)), "expected a table of at least three columns, x y z, got shape \\(3,\\)"),
        (npy(np.zeros((2, 3, 3))), "expected a table"),
        (npy(np.zeros((3, 2))), "expected a table"),
        (npy(np.full((2, 3), np.nan)), "expected at least one finite point, got none in 2"),
    ],
)
def test_bad_tables_are_refused(data, message, tmp_path):
    (tmp_path / "cloud.npy").write_bytes(data)
    with pytest.raises(CloudFileError, match=rf"^cannot read .*cloud\.npy: {message}"):
        load_cloud(tmp_path / "cloud.npy")


@pytest.mark.parametrize("claimed", [True, False])
def test_a_bomb_is_refused(claimed, tmp_path):
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("points.npy", "w") as file:
        file.write(lying_npy(f"({400 << 16}, 3)" if claimed else "(1, 3)")[:-24])
        for _ in range(400):  # 600 MB of zeros
            file.write(bytes(24 << 16))
    with (
        little_memory(500 << 20),
        pytest.raises(CloudFileError, match=r"expected less in [0-9]+ bytes, got [0-9]+ in one"),
    ):
        load_cloud(path)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"xyz": np.zeros((2, 3))}, "expected an array 'points', got xyz"),
        ({"points": np.zeros((2, 4))}, "expected points of shape \\(2, 3\\), got \\(2, 4\\)"),
        ({"points": np.float64(3)}, "expected points of shape"),
        (
            {"points": np.zeros((2, 3)), "normals": np.zeros((3, 3))},
            "expected normals of shape \\(2, 3\\), got \\(3, 3\\)",
        ),
    ],
)
def test_bad_archives_are_refused(arrays, message, tmp_path):
    np.savez(tmp_path / "cloud.npz", **arrays)
    with pytest.raises(CloudFileError, match=rf"^cannot read .*cloud\.npz: {message}"):
        load_cloud(tmp_path / "cloud.npz")


def test_what_is_no_archive_is_refused(tmp_path):
    (tmp_path / "cloud.npz").write_bytes(b"PK but no more")
    with pytest.raises(CloudFileError, match="zipfile could not read it: File is not a zip file"):
        load_cloud(tmp_path / "cloud.npz")


def test_fields_may_have_the_names_of_arguments(tmp_path):
    fields = {"file": torch.ones(1), "allow_pickle": torch.zeros(1)}
    save_cloud(tmp_path / "cloud.npz", Cloud(torch.zeros(1, 3), fields=fields))
    assert load_cloud(tmp_path / "cloud.npz").fields == fields
    with np.load(tmp_path / "cloud.npz", allow_pickle=False) as stored:
        assert sorted(stored) == ["allow_pickle", "file", "points"]


def test_fields_called_points_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^fields must have names that mean nothing else in a file, got 'points'"):
        save_cloud(tmp_path / "cloud.npz", Cloud(torch.zeros(1, 3), fields={"points": torch.zeros(1)}))


def test_a_kitti_scan(tmp_path):
    table = np.arange(12, dtype="<f4").reshape(3, 4)
    table[1, 0] = np.nan
    table.tofile(tmp_path / "000000.bin")
    found = load_cloud(tmp_path / "000000.bin")
    assert found.points.tolist() == [[0, 1, 2], [8, 9, 10]]
    assert found.fields["intensity"].tolist() == [3, 11]
    assert (found.points.dtype, found.dropped) == (torch.float32, 1)


def test_a_kitti_scan_keeps_points_and_intensity(tmp_path):
    before = cloud(dtype=torch.float32)
    save_cloud(tmp_path / "scan.bin", before)
    after = load_cloud(tmp_path / "scan.bin")
    assert (after.points == before.points).all()
    assert (after.fields["intensity"] == before.fields["intensity"]).all()
    save_cloud(tmp_path / "scan.bin", before.points)
    assert (load_cloud(tmp_path / "scan.bin").fields["intensity"] == 0).all()


@pytest.mark.parametrize("size", [0, 15, 17, 40])
def test_a_kitti_scan_of_the_wrong_size_is_refused(size, tmp_path):
    (tmp_path / "scan.bin").write_bytes(bytes(size))
    with pytest.raises(CloudFileError, match=f"expected 16 bytes for each point, .* got {size} bytes"):
        load_cloud(tmp_path / "scan.bin")
