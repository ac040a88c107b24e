"""A small good file of every kind that can be read, made on the spot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from p2plane.data.cloud import Cloud
from p2plane.data.io import save_cloud

SQUARE = "0 0 0\n2 0 0\n2 1 0\n0 1 0\n"  # corners of a rectangle of area 2 in the plane z = 0


def cloud(points: int = 20, dtype: torch.dtype = torch.float64, everything: bool = True, seed: int = 0) -> Cloud:
    """Map coordinates, with normals, colours of a byte each and three fields if ``everything``."""
    generator = torch.Generator().manual_seed(seed)
    offset = torch.tensor([412345.678, 5654321.123, 101.5], dtype=torch.float64)
    xyz = (100 * torch.rand(points, 3, generator=generator, dtype=torch.float64) + offset).to(dtype)
    if not everything:
        return Cloud(xyz)
    normals = torch.nn.functional.normalize(torch.randn(points, 3, generator=generator, dtype=dtype), dim=-1)
    fields = {
        "intensity": torch.rand(points, generator=generator),
        "ring": torch.arange(points, dtype=torch.int32) - 3,
        "time": 1.7e9 + torch.rand(points, generator=generator, dtype=torch.float64),
    }
    colors = torch.randint(0, 256, (points, 3), generator=generator) / 255
    return Cloud(xyz, normals, colors, fields)


def saved(suffix: str, **options: bool) -> Callable[[Path], bytes]:
    """What `save_cloud` writes."""

    def make(folder: Path) -> bytes:
        path = folder / f"good{suffix}"
        save_cloud(path, cloud(), **options)
        return path.read_bytes()

    return make


def text(content: str) -> Callable[[Path], bytes]:
    """A file of that text."""
    return lambda folder: content.encode()


def ply_mesh(order: str) -> Callable[[Path], bytes]:
    """A PLY file with two triangles and a quadrilateral before its vertices, which have a list as well."""
    header = "element face 3\nproperty list uchar int vertex_indices\nproperty uchar flags\n"
    header += "element vertex 4\nproperty float x\nproperty float y\nproperty float z\nproperty list uchar short seen\n"
    name = {"<": "binary_little_endian", ">": "binary_big_endian", "=": "ascii"}[order]
    faces, seen = ((0, 1, 2), (0, 2, 3), (0, 1, 2, 3)), ((), (7,), (7, 8), ())
    vertices = np.array([line.split() for line in SQUARE.splitlines()], dtype=np.float32)

    def number(kind: str, *values: float) -> bytes:
        return np.array(values, order + kind).tobytes() if order != "=" else "".join(f"{v:g} " for v in values).encode()

    end = b"" if order != "=" else b"\n"
    body = b"".join(number("u1", len(f)) + number("i4", *f) + number("u1", 9) + end for f in faces)
    for vertex, views in zip(vertices, seen, strict=True):
        body += number("f4", *vertex) + number("u1", len(views)) + number("i2", *views) + end
    return lambda folder: f"ply\nformat {name} 1.0\n{header}end_header\n".encode() + body


def stl_binary(folder: Path) -> bytes:
    """Two triangles."""
    corners = np.array([[[0, 0, 0], [2, 0, 0], [2, 1, 0]], [[0, 0, 0], [2, 1, 0], [0, 1, 0]]], "<f4")
    faces = np.zeros(2, [("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])
    faces["corners"] = corners
    return bytes(80) + np.uint32(2).tobytes() + faces.tobytes()


def stl_text(folder: Path) -> bytes:
    """Two triangles."""
    corners = SQUARE.splitlines()
    facets = ""
    for face in ((0, 1, 2), (0, 2, 3)):
        loop = "".join(f"      vertex {corners[i]}\n" for i in face)
        facets += f"  facet normal 0 0 1\n    outer loop\n{loop}    endloop\n  endfacet\n"
    return f"solid square\n{facets}endsolid square\n".encode()


def e57(folder: Path) -> bytes:
    """A scan of twenty points, moved by its pose."""
    import pye57

    points, path = cloud(dtype=torch.float32).points.double().numpy(), folder / "good.e57"
    data = dict(zip(("cartesianX", "cartesianY", "cartesianZ"), points.T - 1, strict=True))
    data |= {"intensity": np.linspace(0, 1, 20, dtype=np.float32)}
    data |= {name: np.arange(20, dtype=np.uint8) for name in ("colorRed", "colorGreen", "colorBlue")}
    with pye57.E57(str(path), mode="w") as file:
        file.write_scan_raw(data, translation=np.ones(3))
    return path.read_bytes()


SAMPLES: dict[str, tuple[str, Callable[[Path], bytes]]] = {
    "ply binary": (".ply", saved(".ply")),
    "ply ascii": (".ply", saved(".ply", ascii=True)),
    "ply mesh little endian": (".ply", ply_mesh("<")),
    "ply mesh big endian": (".ply", ply_mesh(">")),
    "ply mesh ascii": (".ply", ply_mesh("=")),
    "pcd binary": (".pcd", saved(".pcd")),
    "pcd ascii": (".pcd", saved(".pcd", ascii=True)),
    "pcd compressed": (".pcd", saved(".pcd", compressed=True)),
    "xyz": (".xyz", saved(".xyz")),
    "xyzn": (".xyzn", saved(".xyzn")),
    "csv": (".csv", saved(".csv")),
    "pts": (".pts", saved(".pts")),
    "npy": (".npy", saved(".npy")),
    "npz": (".npz", saved(".npz")),
    "npz compressed": (".npz", saved(".npz", compressed=True)),
    "kitti": (".bin", saved(".bin")),
    "off": (".off", text(f"OFF\n4 2 0\n{SQUARE}3 0 1 2\n3 0 2 3\n")),
    "off glued": (".off", text(f"OFF4 1 0\n{SQUARE}4 0 1 2 3\n")),
    "obj": (".obj", text("".join(f"v {line}\n" for line in SQUARE.splitlines()) + "f 1 2 3\nf 1/1 -2/1 -1/1\n")),
    "stl binary": (".stl", stl_binary),
    "stl text": (".stl", stl_text),
    "las": (".las", saved(".las")),
    "laz": (".laz", saved(".laz")),
    "e57": (".e57", e57),
}
MESHES = [name for name in SAMPLES if SAMPLES[name][0] in (".off", ".obj", ".stl") or "mesh" in name]
