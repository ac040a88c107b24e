"""OFF, OBJ and STL meshes, and points drawn from them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from p2plane.data.io import CloudFileError, load_cloud, save_cloud
from tests.data.samples import MESHES, SAMPLES, SQUARE, cloud


def loaded(tmp_path, suffix: str, text: str, **options: int):
    """The cloud in a file of that text."""
    path = tmp_path / f"mesh{suffix}"
    path.write_text(text)
    return load_cloud(path, **options)


@pytest.mark.parametrize("name", MESHES)
def test_vertices_are_the_points(name, tmp_path):
    suffix, make = SAMPLES[name]
    path = tmp_path / f"mesh{suffix}"
    path.write_bytes(make(tmp_path))
    found = load_cloud(path)
    assert sorted(found.points.tolist()) == [[0, 0, 0], [0, 1, 0], [2, 0, 0], [2, 1, 0]]
    assert found.normals is None


@pytest.mark.parametrize("name", MESHES)
def test_points_are_drawn_uniformly_with_the_normals_of_their_faces(name, tmp_path):
    suffix, make = SAMPLES[name]
    path = tmp_path / f"mesh{suffix}"
    path.write_bytes(make(tmp_path))
    found = load_cloud(path, points_from_mesh=4000, seed=1)
    assert (found.normals == torch.tensor([0, 0, 1], dtype=found.normals.dtype)).all()
    cells, _ = np.histogramdd(found.points[:, :2].numpy(), bins=(4, 2), range=((0, 2), (0, 1)))
    expected = 4000 / 8
    assert found.points.min() >= 0
    assert (np.abs(cells - expected) < 5 * np.sqrt(expected)).all()


def test_large_faces_get_more_points(tmp_path):
    text = "OFF\n6 2 0\n0 0 0\n3 0 0\n0 3 0\n0 0 9\n1 0 9\n0 1 9\n3 0 1 2\n3 3 5 4\n"
    found = loaded(tmp_path, ".off", text, points_from_mesh=10000)
    low = found.points[:, 2] == 0
    assert abs(low.double().mean().item() - 0.9) < 0.015
    assert (found.normals[low] == torch.tensor([0.0, 0.0, 1.0])).all()
    assert (found.normals[~low] == torch.tensor([0.0, 0.0, -1.0])).all()


def test_the_same_seed_draws_the_same_points(tmp_path):
    text = f"OFF\n4 1 0\n{SQUARE}4 0 1 2 3\n"
    first, again, other = (loaded(tmp_path, ".off", text, points_from_mesh=10, seed=seed).points for seed in (3, 3, 4))
    assert (first == again).all()
    assert (first != other).any()


def test_modelnet_headers_and_comments(tmp_path):
    for start in ("OFF4 1 0\n", "OFF 4 1 0\n", "OFF\n# made by hand\n4 1 0 # counts\n\n", "OFF\n4 1\n"):
        assert len(loaded(tmp_path, ".off", f"{start}{SQUARE}4 0 1 2 3\n", points_from_mesh=5)) == 5


def test_obj_keeps_vertices_without_faces_in_their_order(tmp_path):
    text = (
        "mtllib none.mtl\nv 5 5 5\nv 0 0 0 1 0 0\n".replace(" 1 0 0", "")
        + "v 1 0 0\nvt 0 0\nvn 0 0 1\nf 2/1/1 3//1 1\n"
    )
    assert loaded(tmp_path, ".obj", text).points.tolist() == [[5, 5, 5], [0, 0, 0], [1, 0, 0]]


def test_obj_colors(tmp_path):
    found = loaded(tmp_path, ".obj", "v 1 2 3 0 0.2 1\nv 4 5 6 0 0 0\n")
    assert_close(found.colors, torch.tensor([[0, 0.2, 1], [0, 0, 0]]))


def test_points_are_written_without_faces(tmp_path):
    before = cloud()
    for suffix in (".off", ".obj"):
        save_cloud(tmp_path / f"points{suffix}", before)
        after = load_cloud(tmp_path / f"points{suffix}")
        assert (after.points == before.points).all()
        assert suffix == ".off" or (after.colors == before.colors).all()


def test_stl_cannot_be_written(tmp_path):
    with pytest.raises(
        CloudFileError, match=r"^cannot write .*cloud\.stl: expected a name that ends with one of \.ply"
    ):
        save_cloud(tmp_path / "cloud.stl", torch.zeros(1, 3))


@pytest.mark.parametrize(
    ("suffix", "text", "message"),
    [
        (".off", "", "expected a file that begins with 'OFF', got ''"),
        (".off", f"COFF\n4 0 0\n{SQUARE}", "expected a file that begins with 'OFF', got 'COFF'"),
        (".off", "OFF\n1000000000000 2 0\n0 0 0\n", "expected [0-9]+ bytes for 1000000000000 vertices"),
        (".off", f"OFF\n-4 0 0\n{SQUARE}", "expected a count for vertices, got '-4'"),
        (".off", f"OFF\n4 1 0\n{SQUARE}3 0 1 4\n", "expected faces between 4 vertices, got one with vertex 4"),
        (".off", f"OFF\n4 1 0\n{SQUARE}3 0 1 -1\n", "expected a count for a corner, got '-1'"),
        (".off", f"OFF\n4 1 0\n{SQUARE}3 0 1 {9**50}\n", "expected faces between 4 vertices"),
        (".off", f"OFF\n4 1 0\n{SQUARE}1000000000 0 1 2\n", "expected a face with 1000000000 corners, got 3"),
        (".off", f"OFF\n4 2 0\n{SQUARE}3 0 1 2\n", "expected 2 faces, got 1"),
        (".obj", "", "expected at least one finite point, got none in 0"),
        (".obj", "v 1 2\n", "expected vertices x y z"),
        (".obj", "v 0 0 0\nf 1 2 3\n", "expected faces between 1 vertices, got one with vertex 2"),
        (".obj", "v 0 0 0\nf 1 1 -5\n", "expected faces between 1 vertices, got one with vertex -4"),
        (".obj", "v 0 0 0\nf a b c\n", "expected a corner of a face"),
        (".stl", "", "expected 'solid' or 84 bytes for 0 triangles, got 0 bytes"),
        (".stl", "\0" * 80 + "\x7f\x7f\x7f\x7f", "expected 'solid' or [0-9]+ bytes for 2139062143 triangles, got 84"),
        (".stl", "solid a\nvertex 1 2 3\nendsolid a\n", "expected three vertices x y z to each facet, got 1"),
        (".stl", "solid a\nendsolid a\n", "expected at least one finite point"),
    ],
)
def test_bad_files_are_refused(suffix, text, message, tmp_path):
    with pytest.raises(CloudFileError, match=rf"^cannot read .*mesh\{suffix}: {message}"):
        loaded(tmp_path, suffix, text)


def test_points_from_what_has_no_faces_are_refused(tmp_path):
    with pytest.raises(CloudFileError, match="expected faces to draw points from, got a file without any"):
        loaded(tmp_path, ".xyz", "1 2 3\n", points_from_mesh=5)
    with pytest.raises(CloudFileError, match="expected faces with an area to draw points from, got none"):
        loaded(tmp_path, ".off", "OFF\n3 1 0\n0 0 0\n1 1 1\n2 2 2\n3 0 1 2\n", points_from_mesh=5)
