"""Loading and saving: every format there and back, errors, files that are replaced whole, and real scans."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from p2plane.data.cloud import Cloud
from p2plane.data.formats import ply, rows
from p2plane.data.io import READERS, WRITERS, CloudFileError, load_cloud, save_cloud
from tests.data.samples import SAMPLES, cloud

EXACT = [
    (".ply", {}),
    (".ply", {"ascii": True}),
    (".pcd", {}),
    (".pcd", {"ascii": True}),
    (".pcd", {"compressed": True}),
    (".npz", {}),
    (".npz", {"compressed": True}),
]
DATA = os.environ.get("P2PLANE_DATA")
SCANS = {  # files, points, and the share of source points that have a target point within a distance under T
    "room": ("source.pcd", "target.pcd", 3903, 3458, 0.05, 0.75),
    "lidar": ("source.ply", "target.ply", 69792, 69088, 0.2, 0.83),
    "bunny": ("source.ply", "target.ply", 40097, 40256, 0.001, 0.91),
    "car": ("source.xyz", "target.xyzn", 25193, 24989, 0.1, 0.56),
}


def assert_same(after: Cloud, before: Cloud) -> None:
    """Every number is the same, and of the same type."""
    assert_close(after.points, before.points, rtol=0, atol=0)
    for name in ("normals", "colors"):
        mine, other = getattr(after, name), getattr(before, name)
        assert (mine is None) == (other is None)
        if mine is not None:
            assert_close(mine, other, rtol=0, atol=0)
    assert list(after.fields) == list(before.fields)
    for name, values in before.fields.items():
        assert_close(after.fields[name], values, rtol=0, atol=0)


def saved_and_loaded(tmp_path: Path, suffix: str, before: Cloud, **options: bool) -> Cloud:
    """What comes back from a file."""
    if "compressed" in options and suffix == ".pcd":
        pytest.importorskip("lzf")
    save_cloud(tmp_path / f"cloud{suffix}", before, **options)
    return load_cloud(tmp_path / f"cloud{suffix}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("everything", [True, False])
@pytest.mark.parametrize(("suffix", "options"), EXACT)
def test_everything_comes_back_exactly(suffix, options, everything, dtype, tmp_path):
    before = cloud(dtype=dtype, everything=everything)
    assert_same(saved_and_loaded(tmp_path, suffix, before, **options), before)


@pytest.mark.parametrize(("suffix", "options"), [*EXACT, (".xyz", {}), (".csv", {})])
def test_colors_between_the_bytes_come_back_exactly(suffix, options, tmp_path):
    before = replace(cloud(), colors=torch.rand(20, 3, generator=torch.Generator().manual_seed(2)))
    assert (saved_and_loaded(tmp_path, suffix, before, **options).colors == before.colors).all()


@pytest.mark.parametrize("suffix", sorted(set(WRITERS) - {".las", ".laz", ".xyzn", ".bin"}))
def test_points_come_back_exactly_from_every_format(suffix, tmp_path):
    before = cloud(everything=False)
    for points in (before.points, before.points.numpy(), before.points.requires_grad_(), before):
        assert_close(saved_and_loaded(tmp_path, suffix, points).points, before.points.detach(), rtol=0, atol=0)


@pytest.mark.parametrize("suffix", [".ply", ".npz", ".csv"])
def test_extreme_numbers_come_back_exactly(suffix, tmp_path):
    points = torch.tensor([[5e-324, 1.7976931348623157e308, -0.0], [0.1, 1 / 3, 1e-17]], dtype=torch.float64)
    assert (saved_and_loaded(tmp_path, suffix, Cloud(points)).points == points).all()


def test_half_precision_truth_and_spaces_in_names(tmp_path):
    fields = {"is ground": torch.tensor([True, False]), "weight": torch.tensor([0.5, 0.25], dtype=torch.float16)}
    found = saved_and_loaded(tmp_path, ".ply", Cloud(torch.zeros(2, 3), fields=fields)).fields
    assert {name: values.tolist() for name, values in found.items()} == {"is_ground": [1, 0], "weight": [0.5, 0.25]}


def test_normals_get_unit_length_and_nonsense_becomes_zero(tmp_path):
    normals = [[0, 0, 1e-300], [0, 3e200, 4e200], [0, 0, 0], [np.nan, 0, 1], [np.inf, 0, 0], [0.6, 0.8, 0]]
    np.savez(tmp_path / "cloud.npz", points=np.zeros((6, 3)), normals=np.array(normals))
    expected = [[0, 0, 1], [0, 0.6, 0.8], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0.6, 0.8, 0]]
    assert_close(load_cloud(tmp_path / "cloud.npz").normals, torch.tensor(expected, dtype=torch.float64))


def test_points_that_are_not_finite_are_dropped_with_all_that_belongs_to_them(tmp_path):
    points = np.array([[1, 2, 3], [np.nan, 0, 0], [0, np.inf, 0], [4, 5, 6]])
    np.savez(tmp_path / "cloud.npz", points=points, normals=np.eye(4, 3), label=np.arange(4))
    found = load_cloud(tmp_path / "cloud.npz")
    assert found.points.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert found.normals.tolist() == [[1, 0, 0], [0, 0, 0]]
    assert found.fields["label"].tolist() == [0, 3]
    assert found.dropped == 2


def test_capital_letters_in_the_ending_do_not_matter(tmp_path):
    save_cloud(tmp_path / "CLOUD.PLY", cloud())
    assert len(load_cloud(str(tmp_path / "CLOUD.PLY"))) == 20


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^there is no file .*nowhere\.ply"):
        load_cloud(tmp_path / "nowhere.ply")
    with pytest.raises(FileNotFoundError, match=r"^there is no folder .*nowhere for cloud\.ply"):
        save_cloud(tmp_path / "nowhere" / "cloud.ply", cloud())


@pytest.mark.parametrize(("name", "ending"), [("cloud.doc", r"'\.doc'"), ("cloud", "'no ending'")])
def test_an_unknown_ending_lists_the_known_ones(name, ending, tmp_path):
    (tmp_path / name).write_bytes(b"1 2 3")
    with pytest.raises(CloudFileError, match=rf"^cannot read .*{name}: .* one of \.ply, \.pcd, .*\.e57, got {ending}"):
        load_cloud(tmp_path / name)
    with pytest.raises(CloudFileError, match=rf"^cannot write .*{name}: .* one of \.ply, \.pcd, .*\.laz, got {ending}"):
        save_cloud(tmp_path / name, cloud())


def test_a_folder_is_refused(tmp_path):
    (tmp_path / "folder.ply").mkdir()
    with pytest.raises(CloudFileError, match="expected a file, got a folder"):
        load_cloud(tmp_path / "folder.ply")


@pytest.mark.parametrize("suffix", READERS)
def test_empty_and_senseless_files_are_refused(suffix, tmp_path):
    path = tmp_path / f"cloud{suffix}"
    for data in (b"", b"\n", b"\xff\xfe\x00" * 1001, b"ply" * 100_001, b"1" * 1_000_001, bytes(1001)):
        path.write_bytes(data)
        try:
            with pytest.raises(CloudFileError, match=rf"^cannot read .*cloud\{suffix}: "):
                load_cloud(path)
        except ImportError as error:
            pytest.skip(str(error))


@pytest.mark.parametrize(
    ("module", "name", "extra"), [("laspy", "las", "las"), ("pye57", "e57", "e57"), ("lzf", "pcd compressed", "pcd")]
)
def test_a_library_that_is_not_there_names_the_remedy(module, name, extra, tmp_path, monkeypatch):
    suffix, make = SAMPLES[name]
    pytest.importorskip(module)
    path = tmp_path / f"cloud{suffix}"
    path.write_bytes(make(tmp_path))
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"files need the module {module}: pip install 'p2plane\[{extra}\]'"):
        load_cloud(path)


@pytest.mark.parametrize("count", [0, -1, 2.5, "ten"])
def test_a_senseless_number_of_points_is_refused(count, tmp_path):
    with pytest.raises(ValueError, match=f"^points_from_mesh must be a positive integer, got {count!r}"):
        load_cloud(tmp_path / "mesh.off", points_from_mesh=count)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([[1.0, 2.0, 3.0]], "^cloud must be a Cloud, a tensor or a NumPy array, got list"),
        (torch.zeros(0, 3), "^cloud must have at least one point, got none"),
        (torch.zeros(3, 2), r"^points must have shape \(N, 3\), got \(3, 2\)"),
        (np.zeros((2, 3), int), "^points must be float32 or float64, got torch.int64"),
        (
            Cloud(torch.zeros(1, 3), fields={"nx": torch.zeros(1)}),
            "^fields must have names that mean nothing else .*'nx'",
        ),
        (
            Cloud(torch.zeros(1, 3), fields={"a b": torch.zeros(1), "a_b": torch.zeros(1)}),
            "^fields must have different",
        ),
    ],
)
def test_what_is_no_cloud_is_not_written(points, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        save_cloud(tmp_path / "cloud.ply", points)
    assert not list(tmp_path.iterdir())


def test_options_that_a_format_does_not_have_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^ascii must go with a file out of \.ply, \.pcd, got cloud\.npy"):
        save_cloud(tmp_path / "cloud.npy", cloud(), ascii=True)
    with pytest.raises(ValueError, match=r"^compressed must go with a file out of \.pcd, \.npz, got cloud\.ply"):
        save_cloud(tmp_path / "cloud.ply", cloud(), compressed=True)
    with pytest.raises(ValueError, match=r"^ascii must not go with compressed"):
        save_cloud(tmp_path / "cloud.pcd", cloud(), ascii=True, compressed=True)


class DiskIsFullError(OSError):
    """What a write raises when nothing is left."""


@pytest.mark.parametrize("before", [b"old", None])
@pytest.mark.parametrize("error", [DiskIsFullError, KeyboardInterrupt])
def test_a_write_that_fails_midway_leaves_the_old_file_and_no_litter(before, error, tmp_path, monkeypatch):
    path = tmp_path / "cloud.ply"
    if before:
        path.write_bytes(before)

    def fail(file, columns, delimiter=" "):
        file.write(b"half a po")
        raise error

    monkeypatch.setattr(rows, "write", fail)
    with pytest.raises(error):
        save_cloud(path, cloud(), ascii=True)
    assert [each.read_bytes() for each in tmp_path.iterdir()] == ([before] if before else [])


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "cloud.ply"
    path.write_bytes(b"old")

    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_cloud(path, cloud())
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"old"]


def test_a_file_is_replaced_whole_with_its_permissions_and_through_a_link(tmp_path):
    path, link = tmp_path / "cloud.ply", tmp_path / "link.ply"
    path.write_bytes(b"old")
    path.chmod(0o640)
    link.symlink_to(path)
    save_cloud(link, cloud())
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert len(load_cloud(path)) == 20


def test_a_reader_never_changes_the_file(tmp_path):
    for name, (suffix, make) in SAMPLES.items():
        path = tmp_path / f"{name.replace(' ', '_')}{suffix}"
        try:
            path.write_bytes(make(tmp_path))
        except ImportError:
            continue
        data = path.read_bytes()
        load_cloud(path)
        assert path.read_bytes() == data


def test_long_lists_of_faces_are_read_alike_at_once_and_row_by_row(tmp_path):
    faces = np.random.default_rng(0).integers(0, 4, (50, 3))
    header = "element vertex 4\nproperty float x\nproperty float y\nproperty float z\n"
    header += f"element face {len(faces)}\nproperty list uchar int vertex_index\n"
    vertices = np.eye(4, 3, dtype="<f4").tobytes()
    for extra in (b"", b"\x04" + np.array([0, 1, 2, 3], "<i4").tobytes()):  # the second is ragged
        body = vertices + b"".join(b"\x03" + face.astype("<i4").tobytes() for face in faces) + extra
        counted = header.replace(f"face {len(faces)}", f"face {len(faces) + bool(extra)}")
        path = tmp_path / "mesh.ply"
        path.write_bytes(f"ply\nformat binary_little_endian 1.0\n{counted}end_header\n".encode() + body)
        found = ply.read(path).faces
        assert found[:50].tolist() == faces.tolist()
        assert found[50:].tolist() == ([[0, 1, 2], [0, 2, 3]] if extra else [])


@pytest.mark.skipif(not DATA, reason="P2PLANE_DATA does not name a folder with scans")
@pytest.mark.parametrize("name", SCANS)
def test_real_scans_overlap_where_they_should(name):
    spatial = pytest.importorskip("scipy.spatial")
    source_name, target_name, source_count, target_count, distance, share = SCANS[name]
    folder = Path(DATA or "") / "scans" / name
    source, target = load_cloud(folder / source_name), load_cloud(folder / target_name)
    assert (len(source), len(target)) == (source_count, target_count)
    assert (source.dropped, target.dropped) == (0, 0)
    assert (target.normals is not None) == (name in ("room", "car"))
    T_target_source = np.loadtxt(folder / "T_target_source.txt")
    moved = source.points.double().numpy() @ T_target_source[:3, :3].T + T_target_source[:3, 3]
    nearest, _ = spatial.cKDTree(target.points.double().numpy()).query(moved)
    assert abs((nearest < distance).mean() - share) < 0.02
