"""Meshes: OFF, OBJ and STL files, and points drawn from the faces of any mesh."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from p2plane.data.cloud import Cloud
from p2plane.data.formats import limits, rows
from p2plane.data.formats.content import NORMALS, POINTS, Columns, Content, columns_of, take_points

STL_FACE = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])
_NUMBER = rb"[-+.0-9a-zA-Z]+"
_STL_VERTEX = re.compile(rb"\bvertex[ \t]+(%s)[ \t]+(%s)[ \t]+(%s)" % (_NUMBER, _NUMBER, _NUMBER))


def triangles(lengths: np.ndarray, corners: np.ndarray, vertices: int) -> np.ndarray:
    """(F, 3) the polygons of some lengths, whose corners follow one another, cut into fans of triangles."""
    if corners.size and not (corners.min() >= 0 and corners.max() < vertices):
        wrong = corners.max() if corners.min() >= 0 else corners.min()
        raise ValueError(f"expected faces between {vertices} vertices, got one with vertex {wrong}")
    starts = np.cumsum(lengths) - lengths
    fans = np.maximum(lengths - 2, 0)
    first = np.repeat(starts, fans)
    step = np.arange(fans.sum()) - np.repeat(np.cumsum(fans) - fans, fans)
    return np.stack([corners[first], corners[first + step + 1], corners[first + step + 2]], axis=1).astype(np.int64)


def sample(content: Content, count: int, seed: int) -> Columns:
    """Columns of points drawn uniformly by area from the faces, each with the normal of its face."""
    if content.faces is None or not len(content.faces):
        raise ValueError("expected faces to draw points from, got a file without any")
    vertices = take_points(dict(content.columns))
    with np.errstate(invalid="ignore"):  # a broken file may have numbers that are none
        corners = vertices[content.faces].astype(np.float64)  # (F, 3, 3)
    corners = corners[np.isfinite(corners).all(axis=(1, 2))]
    largest = np.abs(corners).max(initial=0) or 1.0  # lest the squares overflow or vanish
    sides = corners[:, 1:] / largest - corners[:, :1] / largest
    cross = np.cross(sides[:, 0], sides[:, 1])
    area = np.linalg.norm(cross, axis=1)
    if not area.sum() > 0:
        raise ValueError("expected faces with an area to draw points from, got none")
    generator = np.random.default_rng(seed)
    face = generator.choice(len(area), size=count, p=area / area.sum())
    u, v = generator.random((2, count, 1))
    u, v = np.where(u + v > 1, 1 - u, u), np.where(u + v > 1, 1 - v, v)
    points = (corners[face, 0] / largest + u * sides[face, 0] + v * sides[face, 1]) * largest
    normals = cross[face] / area[face, None]
    table = np.concatenate([points, normals], axis=1).astype(
        vertices.dtype if vertices.dtype.kind == "f" else np.float64
    )
    return dict(zip((*POINTS[0], *NORMALS[0]), table.T, strict=True))


def read_off(path: Path) -> Content:
    """An OFF mesh, also with the counts glued to its first word, as in ModelNet; colours are left out."""
    size = path.stat().st_size
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = rows.filled(line.partition("#")[0] for line in limits.lines(file))
        first = next(lines, "").strip()
        if not first.startswith("OFF"):
            raise ValueError(f"expected a file that begins with 'OFF', got {first[:40]!r}")
        counts = (first[3:] or next(lines, "")).split()
        if len(counts) not in (2, 3):
            raise ValueError(f"expected the numbers of vertices, faces and edges, got {' '.join(counts)[:40]!r}")
        vertex_count, face_count = limits.count("vertices", counts[0]), limits.count("faces", counts[1])
        limits.fits(f"{vertex_count} vertices and {face_count} faces", 6 * vertex_count + 2 * face_count, size)
        table = rows.parse(lines, most=vertex_count) if vertex_count else np.empty((0, 3))
        if len(table) != vertex_count or table.shape[1] < 3:
            raise ValueError(f"expected {vertex_count} vertices x y z, got {len(table)} rows of {table.shape[1]}")
        polygons = [_off_face(line) for _, line in zip(range(face_count), lines, strict=False)]
    if len(polygons) != face_count:
        raise ValueError(f"expected {face_count} faces, got {len(polygons)}")
    return _mesh(table[:, :3], polygons)


def read_obj(path: Path) -> Content:
    """The vertices of an OBJ file with all its faces; colours after the coordinates, but no materials or textures."""
    vertices, polygons = [], []
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in limits.lines(file):
            if line.startswith(("v ", "v\t")):
                vertices.append(line[2:])
            elif line.startswith(("f ", "f\t")):
                polygons.append([_obj_index(word, len(vertices)) for word in line[2:].partition("#")[0].split()])
    table = rows.parse(line.partition("#")[0] for line in vertices) if vertices else np.empty((0, 3))
    if table.shape[1] not in (3, 4, 6, 7):
        raise ValueError(f"expected vertices x y z, perhaps with a weight or colours, got {table.shape[1]} numbers")
    content = _mesh(table[:, :3], polygons)
    if table.shape[1] >= 6:
        content.columns.update(zip(("red", "green", "blue"), table[:, -3:].T, strict=True))
    return content


def read_stl(path: Path) -> Content:
    """The triangles of an STL file, binary or text; corners in the same place become one vertex."""
    data = path.read_bytes()
    binary_count = int.from_bytes(data[80:84], "little")
    is_binary = len(data) >= 84 and len(data) == 84 + STL_FACE.itemsize * binary_count
    if not is_binary and not data[:256].lstrip().lower().startswith(b"solid"):
        raise ValueError(
            f"expected 'solid' or {84 + STL_FACE.itemsize * binary_count} bytes for {binary_count} triangles, "
            f"got {len(data)} bytes"
        )
    corners = np.frombuffer(data, STL_FACE, offset=84)["corners"] if is_binary else _stl_text(data)
    vertices, which = np.unique(corners.reshape(-1, 3), axis=0, return_inverse=True)
    return Content(dict(zip(POINTS[0], vertices.T, strict=True)), which.reshape(-1, 3).astype(np.int64))


def write_off(file: BinaryIO, cloud: Cloud) -> None:
    """Write the points as an OFF file without faces."""
    file.write(f"OFF\n{len(cloud)} 0 0\n".encode())
    rows.write(file, _named(cloud, POINTS[0]))


def write_obj(file: BinaryIO, cloud: Cloud) -> None:
    """Write the points, with their colours, as an OBJ file without faces."""
    columns = _named(cloud, (*POINTS[0], "red", "green", "blue"))
    if cloud.colors is not None:
        columns |= zip(("red", "green", "blue"), cloud.colors.detach().cpu().numpy().T, strict=True)
    rows.write(file, {"v": np.full(len(cloud), "v")} | columns)


def _named(cloud: Cloud, names: Sequence[str]) -> Columns:
    return {name: column for name, column in columns_of(replace(cloud, fields={})).items() if name in names}


def _mesh(vertices: np.ndarray, polygons: list[list[int]]) -> Content:
    lengths = np.array([len(polygon) for polygon in polygons], dtype=np.int64)
    try:
        corners = np.array([corner for polygon in polygons for corner in polygon], dtype=np.int64)
    except OverflowError:
        raise ValueError(f"expected faces between {len(vertices)} vertices, got one beyond 64 bits") from None
    faces = triangles(lengths, corners, len(vertices))
    return Content(dict(zip(POINTS[0], vertices.T, strict=True)), faces if polygons else None)


def _off_face(line: str) -> list[int]:
    words = line.split()
    length = limits.count("corners of a face", words[0])
    if len(words) <= length:
        raise ValueError(f"expected a face with {length} corners, got {len(words) - 1}")
    return [limits.count("a corner", word) for word in words[1 : length + 1]]


def _obj_index(word: str, vertices: int) -> int:
    """The vertex in ``vertex/texture/normal``, from zero; negative ones count back from the last so far."""
    try:
        index = int(word.partition("/")[0])
    except ValueError:
        index = 0
    if index == 0:
        raise ValueError(f"expected a corner of a face that begins with the number of a vertex, got {word[:40]!r}")
    return index - 1 if index > 0 else vertices + index


def _stl_text(data: bytes) -> np.ndarray:
    found = _STL_VERTEX.findall(data)
    if len(found) != data.count(b"vertex") or len(found) % 3:
        raise ValueError(f"expected three vertices x y z to each facet, got {len(found)} in all")
    return rows.parse(b" ".join(words).decode() for words in found) if found else np.empty((0, 3))
