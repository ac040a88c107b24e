"""PLY files."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from p2plane.data.cloud import Cloud
from p2plane.data.io import CloudFileError, load_cloud, save_cloud
from tests.data.samples import SQUARE, cloud, ply_mesh

XYZ = "property float x\nproperty float y\nproperty float z\n"


def written(tmp_path, header: str, body: bytes = b"", kind: str = "ascii"):
    """A file with that header, between its first and last lines."""
    path = tmp_path / "cloud.ply"
    path.write_bytes(f"ply\nformat {kind} 1.0\n{header}end_header\n".encode() + body)
    return path


@pytest.mark.parametrize("order", ["<", ">", "="])
def test_faces_before_the_vertices_and_lists_of_any_length_are_skipped(order, tmp_path):
    path = tmp_path / "mesh.ply"
    path.write_bytes(ply_mesh(order)(tmp_path))
    found = load_cloud(path)
    assert found.points.tolist() == [[0, 0, 0], [2, 0, 0], [2, 1, 0], [0, 1, 0]]
    assert found.points.dtype == torch.float32
    assert not found.fields
    drawn = load_cloud(path, points_from_mesh=100)
    assert (drawn.points[:, 2] == 0).all()
    assert (drawn.normals == torch.tensor([0.0, 0.0, 1.0])).all()


def test_big_endian_numbers_of_every_type(tmp_path):
    names = {"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "double": "f8"}
    header = "element vertex 2\n" + XYZ + "".join(f"property {name} a_{name}\n" for name in names)
    table = np.zeros(2, [(each, ">f4") for each in "xyz"] + [(f"a_{name}", f">{code}") for name, code in names.items()])
    for column in table.dtype.names:
        table[column] = (1, 100)
    found = load_cloud(written(tmp_path, header, table.tobytes(), "binary_big_endian"))
    assert found.points.tolist() == [[1, 1, 1], [100, 100, 100]]
    for name in names:
        assert found.fields[f"a_{name}"].tolist() == [1, 100]
    assert found.select(torch.tensor([True, False])).fields["a_uint"].tolist() == [1]  # of a type that torch can index


@pytest.mark.parametrize("kind", ["uchar", "float"])
def test_colors_are_between_zero_and_one(kind, tmp_path):
    header = "element vertex 2\n" + XYZ + "".join(f"property {kind} {name}\n" for name in ("red", "green", "blue"))
    values = ("0 51 255", "0 0 0") if kind == "uchar" else ("0 0.2 1", "0 0 0")
    found = load_cloud(written(tmp_path, header, "".join(f"1 2 3 {each}\n" for each in values).encode()))
    assert_close(found.colors, torch.tensor([[0, 0.2, 1], [0, 0, 0]]))
    assert not found.fields


def test_comments_and_windows_line_ends(tmp_path):
    path = tmp_path / "cloud.ply"
    text = "ply\nformat ascii 1.0\ncomment élan\nobj_info 3\nelement vertex 4\n" + XYZ + "end_header\n" + SQUARE
    path.write_bytes(text.replace("\n", "\r\n").encode())
    assert len(load_cloud(path)) == 4


def test_integers_that_ply_does_not_know(tmp_path):
    path = tmp_path / "cloud.ply"
    for values in ([1, 2], [1, 2**40], [-1, 2**53]):
        save_cloud(path, Cloud(torch.zeros(2, 3), fields={"label": torch.tensor(values)}))
        assert load_cloud(path).fields["label"].tolist() == values
    with pytest.raises(ValueError, match=r"^fields must fit into 32 bits or a double .*'label'"):
        save_cloud(path, Cloud(torch.zeros(2, 3), fields={"label": torch.tensor([1, 2**53 + 1])}))


@pytest.mark.parametrize(
    ("header", "body", "message"),
    [
        ("element vertex 1000000000000\n" + XYZ, SQUARE, "expected [0-9]* bytes for 1000000000000 rows"),
        ("element vertex -4\n" + XYZ, SQUARE, "expected a count for element 'vertex', got '-4'"),
        ("element vertex 5\n" + XYZ, SQUARE, "expected [0-9]+ (bytes|rows)"),
        ("element vertex 4\nproperty float x\n", "1\n2\n3\n4\n", "expected columns x, y and z, got x"),
        ("element vertex 4\nproperty quad x\n", SQUARE, "expected 'property .*got 'property quad x'"),
        (
            "element face 1\nproperty list uchar int vertex_indices\n",
            "3 0 1 2\n",
            "expected an element 'vertex', got face",
        ),
        ("element vertex 4\n" + XYZ + "property float x\n", SQUARE, "expected different properties"),
        ("element vertex 1\n" + XYZ, "nan 0 0\n", "expected at least one finite point, got none in 1"),
        ("element vertex 1\n" + XYZ, "one 0 0\n", "expected rows of numbers"),
        (
            "element vertex 4\n" + XYZ + "element face 1\nproperty list uchar int vertex_indices\n",
            SQUARE + "3 0 1 4\n",
            "expected faces between 4 vertices, got one with vertex 4",
        ),
        (
            "element vertex 4\n" + XYZ + "element face 1\nproperty list uint int vertex_indices\n",
            SQUARE + "4000000000 0 1 4\n",
            "expected 4000000000 numbers for property 'vertex_indices'",
        ),
    ],
)
def test_bad_files_are_refused(header, body, message, tmp_path):
    with pytest.raises(CloudFileError, match=rf"^cannot read .*cloud\.ply: {message}"):
        load_cloud(written(tmp_path, header, body.encode()))


def test_a_huge_list_in_a_binary_file_is_refused(tmp_path):
    header = "element face 2\nproperty list uint int vertex_indices\nelement vertex 1\n" + XYZ
    body = np.array([0, 0xFFFFFFF0], "<u4").tobytes() + bytes(100)
    with pytest.raises(CloudFileError, match="expected the length of a list, got 4294967280"):
        load_cloud(written(tmp_path, header, body, "binary_little_endian"))


def test_an_element_without_properties_takes_no_time(tmp_path):
    header = "element nothing 1000000000000\nelement vertex 4\n" + XYZ
    assert len(load_cloud(written(tmp_path, header, SQUARE.encode()))) == 4


def test_the_file_is_little_endian_unless_told_otherwise(tmp_path):
    save_cloud(tmp_path / "a.ply", cloud())
    save_cloud(tmp_path / "b.ply", cloud(), ascii=True)
    assert b"format binary_little_endian 1.0" in (tmp_path / "a.ply").read_bytes()
    assert b"format ascii 1.0" in (tmp_path / "b.ply").read_bytes()


@pytest.mark.parametrize("suffix", [".ply", ".pcd"])
@pytest.mark.parametrize("line", [b"comment " + b"a" * 1_000_000, b"# \xff\xfe\n" * 100_000])
def test_a_header_without_end_is_refused(suffix, line, tmp_path):
    path = tmp_path / f"cloud{suffix}"
    path.write_bytes((b"ply\n" if suffix == ".ply" else b"") + line)
    with pytest.raises(CloudFileError, match=r"expected a (header that ends with|line of a PLY header)"):
        load_cloud(path)
