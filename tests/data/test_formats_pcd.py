"""PCD files."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from p2plane.data.io import CloudFileError, load_cloud, save_cloud
from tests.data.samples import SQUARE, cloud

HEADER = {"FIELDS": "x y z", "SIZE": "4 4 4", "TYPE": "F F F", "COUNT": "1 1 1", "WIDTH": "4", "HEIGHT": "1"}
HEADER |= {"POINTS": "4", "DATA": "ascii"}


def written(tmp_path, body: bytes = SQUARE.encode(), **changes: str):
    """A file with some lines of the header changed."""
    path = tmp_path / "cloud.pcd"
    lines = "".join(f"{key} {value}\n" for key, value in (HEADER | changes).items() if value)
    path.write_bytes(f"# .PCD v0.7\nVERSION 0.7\n{lines}".encode() + body)
    return path


def test_counts_that_are_not_there_are_one_and_the_grid(tmp_path):
    assert len(load_cloud(written(tmp_path, COUNT="", POINTS=""))) == 4
    assert len(load_cloud(written(tmp_path, WIDTH="2", HEIGHT="2"))) == 4


def test_points_that_are_not_numbers_are_dropped_and_counted(tmp_path):
    found = load_cloud(written(tmp_path, b"1 2 3\nnan nan nan\n4 5 6\n0 inf 0\n"))
    assert found.points.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert found.dropped == 2


def test_padding_is_skipped_and_fields_of_several_numbers_are_taken_apart(tmp_path):
    table = np.zeros(1, [("x", "<f4", 3), ("pad", "u1", 4), ("h", "<f8", 2), ("t", "<u2")])
    table["x"], table["h"], table["t"] = (1, 2, 3), (4, 5), 6
    lines = {"FIELDS": "x y z _ h t", "SIZE": "4 4 4 1 8 2", "TYPE": "F F F U F U", "COUNT": "1 1 1 4 2 1"}
    found = load_cloud(written(tmp_path, table.tobytes(), **lines, WIDTH="1", POINTS="1", DATA="binary"))
    assert found.points.tolist() == [[1, 2, 3]]
    assert {name: values.tolist() for name, values in found.fields.items()} == {"h_0": [4], "h_1": [5], "t": [6]}


@pytest.mark.parametrize("kind", ["F", "U"])
def test_packed_colors(kind, tmp_path):
    table = np.zeros(1, [("x", "<f4", 3), ("rgba", "<u4")])
    table["rgba"] = 0x80FF3300
    lines = {"FIELDS": "x y z rgba", "SIZE": "4 4 4 4", "TYPE": f"F F F {kind}", "COUNT": "", "WIDTH": "1"}
    found = load_cloud(written(tmp_path, table.tobytes(), **lines, POINTS="1", DATA="binary"))
    assert_close(found.colors, torch.tensor([[1.0, 0.2, 0.0]]))
    assert found.fields["alpha"].tolist() == [128]


@pytest.mark.parametrize("options", [{}, {"ascii": True}, {"compressed": True}])
def test_colors_are_packed_as_the_point_cloud_library_does(options, tmp_path):
    if "compressed" in options:
        pytest.importorskip("lzf")
    path = tmp_path / "cloud.pcd"
    save_cloud(path, cloud(), **options)
    header = path.read_bytes()[:400]
    assert b"FIELDS x y z normal_x normal_y normal_z intensity ring time rgb" in header
    assert_close(load_cloud(path).colors, cloud().colors, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"WIDTH": "1000000000000", "POINTS": "1000000000000"}, "expected 6000000000000 bytes for 1000000000000 rows"),
        ({"WIDTH": "1000000000000", "POINTS": "", "DATA": "binary"}, "expected 12000000000000 bytes for .* points"),
        ({"WIDTH": "-4"}, "expected a count for WIDTH, got '-4'"),
        ({"POINTS": "5"}, "expected WIDTH x HEIGHT = 4 points, got POINTS 5"),
        ({"SIZE": "4 4 3"}, "expected types and sizes out of .*, got 'F3'"),
        ({"COUNT": "1 1 1000000000"}, "expected at most 1024 numbers to a point, got 1000000002"),
        ({"TYPE": "F F"}, "expected one TYPE, SIZE and COUNT for each of the FIELDS"),
        ({"FIELDS": "x y x"}, "expected different FIELDS, got x, y, x"),
        ({"DATA": "binary_zipped"}, "expected DATA out of ascii, binary, binary_compressed, got 'binary_zipped'"),
        ({"DATA": ""}, "expected a header that ends with 'DATA'|expected a line of a PCD header"),
        ({"FIELDS": "a b c"}, "expected columns x, y and z, got a, b, c"),
    ],
)
def test_bad_headers_are_refused(changes, message, tmp_path):
    with pytest.raises(CloudFileError, match=rf"^cannot read .*cloud\.pcd: ({message})"):
        load_cloud(written(tmp_path, **changes))


@pytest.mark.parametrize(("packed", "unpacked"), [(10**9, 48), (5, 2**32 - 1), (5, 48), (0, 0)])
def test_lies_about_the_compression_are_refused(packed, unpacked, tmp_path):
    pytest.importorskip("lzf")
    body = packed.to_bytes(4, "little") + unpacked.to_bytes(4, "little") + bytes(20)
    with pytest.raises(CloudFileError, match=r"expected|error in compressed data"):
        load_cloud(written(tmp_path, body, DATA="binary_compressed"))


def test_points_that_do_not_get_smaller_can_be_compressed(tmp_path):
    pytest.importorskip("lzf")
    points = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    save_cloud(tmp_path / "cloud.pcd", points, compressed=True)
    assert (load_cloud(tmp_path / "cloud.pcd").points == points).all()
