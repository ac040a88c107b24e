"""Text files: .xyz .xyzn .txt .asc .csv .pts."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from p2plane.data.io import CloudFileError, load_cloud, save_cloud
from tests.data.samples import cloud


def loaded(tmp_path, text: str, suffix: str = ".xyz"):
    """The cloud in a file of that text."""
    path = tmp_path / f"cloud{suffix}"
    path.write_bytes(text.encode())
    return load_cloud(path)


@pytest.mark.parametrize("separator", [" ", "\t", ",", ";", ", ", " ; ", "   "])
def test_separators(separator, tmp_path):
    text = "\n".join(separator.join(row) for row in (("1", "2.5", "-3e2"), ("4", "5", "6")))
    assert loaded(tmp_path, text).points.tolist() == [[1, 2.5, -300], [4, 5, 6]]


def test_comments_blank_lines_and_a_byte_order_mark(tmp_path):
    text = "\ufeff# a comment\n// another\n\n1 2 3 # here\n\r\n4 5 6 // there\r\n   \n"
    assert loaded(tmp_path, text).points.tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    "header",
    ["z,Intensity,y,x", "# z Intensity y x", "//z Intensity y x", '"z","Intensity","y","x"', "#z;Intensity;y;x"],
)
def test_names_of_columns(header, tmp_path):
    found = loaded(tmp_path, f"{header}\n3,9,2,1\n6,8,5,4\n", ".csv")
    assert found.points.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert found.fields["Intensity"].tolist() == [9, 8]


def test_names_of_normals_and_colors(tmp_path):
    found = loaded(tmp_path, "X Y Z R G B Nx Ny Nz\n1 2 3 0 51 255 0 0 2\n", ".txt")
    assert_close(found.colors, torch.tensor([[0, 0.2, 1.0]]))
    assert found.normals.tolist() == [[0, 0, 1]]
    assert not found.fields


def test_four_columns_have_an_intensity(tmp_path):
    assert loaded(tmp_path, "1 2 3 0.5\n").fields["intensity"].tolist() == [0.5]


def test_six_columns_have_normals_if_nearly_all_have_unit_length(tmp_path):
    rows = ["1 2 3 0 0.6 0.8"] * 99
    assert loaded(tmp_path, "\n".join([*rows, "1 2 3 0 0 0"])).normals[-1].tolist() == [0, 0, 0]
    assert loaded(tmp_path, "\n".join([*rows, "1 2 3 5 5 5"])).normals is not None
    assert loaded(tmp_path, "\n".join([*rows, "1 2 3 5 5 5", "1 2 3 5 5 5"])).normals is None


def test_six_columns_have_colors_if_they_look_like_it(tmp_path):
    assert_close(loaded(tmp_path, "1 2 3 0 51 255\n").colors, torch.tensor([[0, 0.2, 1]]))
    assert_close(loaded(tmp_path, "1 2 3 0 0.2 0.5\n").colors, torch.tensor([[0, 0.2, 0.5]]))


def test_other_columns_are_fields(tmp_path):
    assert list(loaded(tmp_path, "1 2 3 -4 5 6\n").fields) == ["column_4", "column_5", "column_6"]
    assert list(loaded(tmp_path, "1 2 3 4 5\n").fields) == ["column_4", "column_5"]


def test_xyzn_always_has_normals(tmp_path):
    assert loaded(tmp_path, "1 2 3 0 0 255\n", ".xyzn").normals.tolist() == [[0, 0, 1]]
    with pytest.raises(CloudFileError, match="expected six columns, points and normals, got 3"):
        loaded(tmp_path, "1 2 3\n", ".xyzn")


def test_pts_begins_with_the_number_of_points(tmp_path):
    found = loaded(tmp_path, "2\n1 2 3 -7 0 51 255\n4 5 6 8 0 0 0\n", ".pts")
    assert found.fields["intensity"].tolist() == [-7, 8]
    assert_close(found.colors[0], torch.tensor([0, 0.2, 1]))
    assert len(loaded(tmp_path, "1 2 3\n4 5 6\n", ".pts")) == 2  # some have no count
    with pytest.raises(CloudFileError, match="expected 3 points, as the first line says, got 2"):
        loaded(tmp_path, "3\n1 2 3\n4 5 6\n", ".pts")


def test_map_coordinates_keep_their_digits(tmp_path):
    assert loaded(tmp_path, "5654321.123456 412345.654321 0.1\n").points.tolist() == [
        [5654321.123456, 412345.654321, 0.1]
    ]


@pytest.mark.parametrize("suffix", [".xyz", ".txt", ".asc", ".csv"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_digit_comes_back(suffix, dtype, tmp_path):
    path, before = tmp_path / f"cloud{suffix}", cloud(dtype=dtype)
    save_cloud(path, before)
    after = load_cloud(path)
    assert after.points.dtype == torch.float64
    assert (after.points.to(dtype) == before.points).all()
    assert (after.normals.to(dtype) == before.normals).all()
    assert (after.colors == before.colors).all()
    for name, values in before.fields.items():
        assert (after.fields[name].to(values.dtype) == values).all()


def test_points_alone_are_written_without_names(tmp_path):
    save_cloud(tmp_path / "cloud.xyz", torch.tensor([[1.0, 2.5, 0.1]]))
    assert (tmp_path / "cloud.xyz").read_text() == "1.0 2.5 0.1\n"
    save_cloud(tmp_path / "cloud.csv", torch.tensor([[1.0, 2.5, 0.1]]))
    assert (tmp_path / "cloud.csv").read_text() == "x,y,z\n1.0,2.5,0.1\n"


def test_xyzn_without_normals_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^cloud must have normals for an \.xyzn file, got none"):
        save_cloud(tmp_path / "cloud.xyzn", torch.zeros(1, 3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a table of at least three columns"),
        ("# nothing\n", "expected a table of at least three columns"),
        ("1 2\n", "expected a table of at least three columns, x y z, got shape \\(1, 2\\)"),
        ("1 2 3\n4 5\n", "expected rows of numbers: the number of columns changed from 3 to 2 at row 2"),
        ("1 2 3\n4 five 6\n", "expected rows of numbers: could not convert string 'five'"),
        ("a b c\n1 2 3\n", "expected columns x, y and z, got a, b, c"),
        ("x y z\n", "expected at least one finite point, got none in 0"),
        ("x y z z\n1 2 3 4\n", "expected different names of columns, got x, y, z, z"),
        ("x,y,z,w\n1,2,3\n", "expected 4 columns, x, y, z, w, got 3"),
        ("1 2 3 " * 1000, "expected at most 1024 numbers to a point, got 3000"),
        ("nan nan nan\n", "expected at least one finite point, got none in 1"),
    ],
)
def test_bad_files_are_refused(text, message, tmp_path):
    with pytest.raises(CloudFileError, match=rf"^cannot read .*cloud\.xyz: {message}"):
        loaded(tmp_path, text)
