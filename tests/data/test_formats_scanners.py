"""LAS, LAZ and E57 files."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from p2plane.data.cloud import Cloud
from p2plane.data.io import CloudFileError, load_cloud, save_cloud
from tests.data.mutations import with_checksums
from tests.data.samples import cloud, e57


@pytest.fixture(params=[".las", ".laz"])
def path(request, tmp_path):
    """Where a file of lidar may stand."""
    pytest.importorskip("laspy")
    pytest.importorskip("lazrs")
    return tmp_path / f"cloud{request.param}"


def changed(data: bytes, at: int, new: bytes) -> bytes:
    """The data with other bytes in one place."""
    return data[:at] + new + data[at + len(new) :]


def test_everything_comes_back(path):
    before = cloud()
    save_cloud(path, before)
    after = load_cloud(path)
    assert_close(after.points, before.points, rtol=0, atol=0.51e-7)  # a cloud of 100 m: unit 1e-7
    assert (after.normals == before.normals).all()
    assert (after.colors == before.colors).all()
    assert {name: values.tolist() for name, values in after.fields.items()} == {
        name: values.tolist() for name, values in before.fields.items()
    }


def test_the_dimensions_of_the_standard_are_used_where_they_suffice(path):
    import laspy

    fields = {"intensity": torch.tensor([1, 65535]), "classification": torch.tensor([2, 6]), "gps_time": torch.rand(2)}
    save_cloud(path, Cloud(torch.rand(2, 3), fields=fields))
    stored = laspy.read(path)
    assert not list(stored.point_format.extra_dimension_names)
    assert stored.intensity.tolist() == [1, 65535]
    assert {name: load_cloud(path).fields[name].tolist() for name in fields} == {
        k: v.tolist() for k, v in fields.items()
    }


def test_colors_of_a_byte_each_are_understood(path):
    import laspy

    data = laspy.LasData(laspy.LasHeader(version="1.2", point_format=2))
    data.x, data.y, data.z = np.eye(3)
    data.red, data.green, data.blue = (np.array(values, np.uint16) for values in ([255, 0, 0], [51, 0, 0], [0, 0, 0]))
    data.write(path, do_compress=path.suffix == ".laz")
    assert_close(load_cloud(path).colors[0], torch.tensor([1, 0.2, 0]))


@pytest.mark.parametrize(
    ("at", "new", "message"),
    [
        (0, b"LAST", "expected a file that begins with 'LASF'"),
        (96, b"\xff\xff\xff\x7f", "expected 2147483647 bytes for the header"),
        (100, b"\xff\xff\xff\xff", "expected [0-9]+ bytes for 4294967295 variable length records"),
        (247, (10**12).to_bytes(8, "little"), "expected .* bytes (for|of) 1000000000000 points"),
        (247, (10**5).to_bytes(8, "little"), "expected .*100000 points"),
        (131, np.full(3, np.nan).tobytes(), "expected at least one finite point"),
    ],
)
def test_lies_in_the_header_are_refused(at, new, message, path):
    save_cloud(path, cloud())
    path.write_bytes(changed(path.read_bytes(), at, new))
    with pytest.raises(CloudFileError, match=rf"^cannot read .*: {message}"):
        load_cloud(path)


def test_truncated_files_are_refused(path):
    save_cloud(path, cloud())
    data = path.read_bytes()
    for size in (0, 100, 300, 1000, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(CloudFileError, match=r"expected|laspy could not read it"):
            load_cloud(path)


def test_lies_about_chunks_are_refused(tmp_path):
    pytest.importorskip("lazrs")
    path = tmp_path / "cloud.laz"
    save_cloud(path, cloud())
    data = path.read_bytes()
    start = int.from_bytes(data[96:100], "little")
    table = int.from_bytes(data[start : start + 8], "little")
    width = int.from_bytes(data[105:107], "little")
    for at, new, message in (
        (start, b"\xff\xff\xff\x7f\x00\x00\x00\x00", "expected the table of chunks between"),
        (table + 4, b"\xff\xff\xff\xff", "expected at most one chunk for each of 20 points, got 4294967295"),
        (start + 8 + width + 4, b"\xff\xff\xff\xff", "expected a chunk of [0-9]+ bytes, got 429496"),
    ):
        path.write_bytes(changed(data, at, new))
        with pytest.raises(CloudFileError, match=message):
            load_cloud(path)


def test_a_cloud_too_large_for_las_is_refused(path):
    with pytest.raises(ValueError, match=r"^cloud must reach less than 1e18 from its centre in a LAS file, got 1e\+20"):
        save_cloud(path, torch.tensor([[1e20, 0, 0], [-1e20, 0, 0]], dtype=torch.float64))


@pytest.fixture
def scan(tmp_path):
    """An E57 file."""
    pytest.importorskip("pye57")
    path = tmp_path / "scan.e57"
    path.write_bytes(e57(tmp_path))
    return path


def test_an_e57_scan_is_moved_by_its_pose(scan):
    found = load_cloud(scan)
    assert_close(found.points, cloud(dtype=torch.float32).points.double(), rtol=0, atol=0.5)  # it holds float32
    assert_close(found.fields["intensity"], torch.linspace(0, 1, 20))
    assert_close(found.colors[:, 0], torch.arange(20) / 255)


def test_several_e57_scans_come_together(tmp_path):
    pye57 = pytest.importorskip("pye57")
    path = tmp_path / "scans.e57"
    with pye57.E57(str(path), mode="w") as file:
        for shift in (0.0, 10.0):
            data = dict(zip(("cartesianX", "cartesianY", "cartesianZ"), np.eye(3), strict=True))
            file.write_scan_raw(data, translation=np.full(3, shift))
    found = load_cloud(path)
    assert found.points[:, 0].tolist() == [1, 0, 0, 11, 10, 10]
    assert found.fields["scan"].tolist() == [0, 0, 0, 1, 1, 1]


def test_e57_points_marked_as_invalid_are_dropped(tmp_path):
    pye57 = pytest.importorskip("pye57")
    data = dict(zip(("cartesianX", "cartesianY", "cartesianZ"), np.eye(3), strict=True))
    with pye57.E57(str(tmp_path / "scan.e57"), mode="w") as file:
        file.write_scan_raw(data | {"cartesianInvalidState": np.array([0, 1, 0], np.int8)})
    found = load_cloud(tmp_path / "scan.e57")
    assert found.points.tolist() == [[1, 0, 0], [0, 0, 1]]
    assert found.dropped == 1


def test_e57_lies_are_refused(scan):
    data = scan.read_bytes()
    claims = data.replace(b'recordCount="20"', b'recordCount="99"')
    for broken, message in (
        (b"", "expected a file that begins with 'ASTM-E57'"),
        (data[:-1024], "expected 5120 bytes in pages of 1024, got 4096"),
        (changed(data, 32, b"\xff" * 8), "expected [0-9]+ bytes for the description in XML"),
        (data.replace(b"<e57Root", b"<!ENTITY"), "expected a description in plain XML"),
        (changed(data, 600, b"\xff"), "pye57 could not read it: .*[Cc]hecksum"),
        (with_checksums(claims), "expected 99 points, got 20"),
    ):
        scan.write_bytes(broken)
        with pytest.raises(CloudFileError, match=message):
            load_cloud(scan)


def test_e57_cannot_be_written(tmp_path):
    with pytest.raises(CloudFileError, match=r"^cannot write .*cloud\.e57: expected a name that ends with one of"):
        save_cloud(tmp_path / "cloud.e57", torch.zeros(1, 3))
