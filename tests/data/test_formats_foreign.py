"""Files that Open3D and trimesh wrote; files/README.md tells how."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from p2plane.data.io import load_cloud

FILES = Path(__file__).parent / "files"
INDEX = torch.arange(12, dtype=torch.float64)
POINTS = torch.stack([INDEX / 8, INDEX**2 / 16 - 1, 100 - INDEX], dim=1)
NORMALS = torch.where(INDEX[:, None] % 2 == 0, torch.tensor([0.0, 1.0, 0.0]), torch.tensor([0.0, 0.6, 0.8])).double()
COLORS = (torch.stack([20 * INDEX, 255 - INDEX, INDEX], dim=1) / 255).float()


@pytest.mark.parametrize("path", sorted(FILES.glob("open3d*")), ids=lambda path: path.name)
def test_open3d_clouds(path):
    if "compressed" in path.name:
        pytest.importorskip("lzf")
    cloud = load_cloud(path)
    assert_close(cloud.points, POINTS.to(torch.float32 if path.suffix == ".pcd" else torch.float64), rtol=0, atol=0)
    assert (cloud.normals is not None) == (path.suffix in (".ply", ".pcd", ".xyzn"))
    if cloud.normals is not None:
        assert_close(cloud.normals, NORMALS.to(cloud.points.dtype), rtol=0, atol=1e-7)
    assert (cloud.colors is not None) == (path.suffix in (".ply", ".pcd", ".pts"))
    if cloud.colors is not None:
        assert_close(cloud.colors, COLORS, rtol=0, atol=0)


@pytest.mark.parametrize("path", sorted(FILES.glob("trimesh*")), ids=lambda path: path.name)
def test_trimesh_meshes(path):
    corners = torch.tensor([[x, y, z] for x in (-0.5, 0.5) for y in (-1.0, 1.0) for z in (-1.5, 1.5)])
    vertices = load_cloud(path).points.float()
    assert {tuple(row) for row in vertices.tolist()} == {tuple(row) for row in corners.tolist()}
    assert len(vertices) == 8
    drawn = load_cloud(path, points_from_mesh=500)
    on_face = (drawn.points.abs() / torch.tensor([0.5, 1.0, 1.5]) - 1).abs() < 1e-6
    assert_close((drawn.normals.abs() == 1).float(), on_face.float())
    assert ((drawn.points * drawn.normals).sum(-1) > 0).all()  # outwards
