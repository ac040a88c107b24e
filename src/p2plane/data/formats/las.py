"""LAS and LAZ files of airborne and terrestrial lidar, through laspy."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np

from p2plane.data.cloud import Cloud
from p2plane.data.formats import laz, limits
from p2plane.data.formats.content import COLORS, POINTS, Columns, Content, array, columns_of
from p2plane.data.formats.extras import needed

POWERS_OF_TEN = range(-9, 9)  # units in which coordinates may be counted


def read(path: Path) -> Content:
    """The points of a LAS or LAZ file in double precision; dimensions that are zero everywhere are left out."""
    laspy = _laspy()
    with open(path, "rb") as file:
        _check(file.read(375), path.stat().st_size)
        file.seek(0)
        with limits.contained("laspy"):
            reader = laspy.open(file, read_evlrs=False, laz_backend=laspy.LazBackend.Lazrs, closefd=False)
            if reader.header.are_points_compressed:
                laz.check(file, reader.header, path.stat().st_size)
            points = reader.read_points(-1)
            columns = {name: np.array(points[name]) for name in POINTS[0]} | _dimensions(points)
    if len(columns["x"]) != reader.header.point_count:
        raise ValueError(f"expected {reader.header.point_count} points, got {len(columns['x'])}")
    return Content(columns)


def write(file: BinaryIO, cloud: Cloud) -> None:
    """Write a LAS file; coordinates are rounded to the finest power of ten that 32 bits can count in."""
    _write(file, cloud, compressed=False)


def write_laz(file: BinaryIO, cloud: Cloud) -> None:
    """Write a LAZ file, as `write` does, compressed."""
    _write(file, cloud, compressed=True)


def _write(file: BinaryIO, cloud: Cloud, compressed: bool) -> None:
    laspy = _laspy()
    points = array(cloud.points).astype(np.float64)
    header = laspy.LasHeader(version="1.4", point_format=6 if cloud.colors is None else 7)
    header.offsets = np.floor((points.min(axis=0) + points.max(axis=0)) / 2)
    header.scales = np.full(3, _unit(float(np.abs(points - header.offsets).max())))
    named = {name: each for name, each in columns_of(cloud).items() if name not in (*POINTS[0], *COLORS[0])}
    columns = {_dimension(header.point_format, name, column): column for name, column in named.items()}
    own = set(header.point_format.dimension_names)
    header.add_extra_dims([laspy.ExtraBytesParams(n, each.dtype) for n, each in columns.items() if n not in own])
    data = laspy.LasData(header)
    data.x, data.y, data.z = points.T
    for name, column in columns.items():
        data[name] = column
    if cloud.colors is not None:
        data.red, data.green, data.blue = np.round(array(cloud.colors).T.astype(np.float64) * 65535).astype(np.uint16)
    if not compressed:
        data.write(file)
        return
    packed = io.BytesIO()  # lazrs would make errors of its own of those of the disk
    data.write(packed, do_compress=True, laz_backend=laspy.LazBackend.Lazrs)
    file.write(packed.getbuffer())


def _laspy() -> ModuleType:
    needed("lazrs", "LAS and LAZ", "las")
    return needed("laspy", "LAS and LAZ", "las")


def _check(header: bytes, size: int) -> None:
    """Hold what the header claims against the size of the file, before laspy believes it."""
    if header[:4] != b"LASF" or len(header) < 227:
        raise ValueError("expected a file that begins with 'LASF' and a header of at least 227 bytes, got another")
    header_size, start, records, kind, width, points = struct.unpack_from("<HIIBHI", header, 94)
    if header[25] >= 4 and len(header) == 375:
        points = max(points, struct.unpack_from("<Q", header, 247)[0])
    limits.fits("the header and what belongs to it", start, size)
    limits.fits(f"{records} variable length records", 54 * records, max(start - header_size, 0))
    if kind & 0xC0:
        limits.expands(f"{points} points", width * points, size - start)
    else:
        limits.fits(f"{points} points", width * points, size - start)


def _dimensions(points: Any) -> Columns:
    """All dimensions but the coordinates, those with a trailing underscore under their plain name."""
    found = {
        name: np.array(points[name]) for name in points.point_format.dimension_names if name not in ("X", "Y", "Z")
    }
    colors = {name: found.pop(name) for name in COLORS[0] if name in found}
    columns = {name: values for name, values in found.items() if values.ndim == 1 and values.any()}
    columns = {name if name.rstrip("_") in columns else name.rstrip("_"): column for name, column in columns.items()}
    if any(values.any() for values in colors.values()):
        is_bytes = max(values.max() for values in colors.values()) < 256  # against the standard, but common
        columns |= {name: values.astype(np.uint8) if is_bytes else values for name, values in colors.items()}
    return columns


def _dimension(point_format: Any, name: str, column: np.ndarray) -> str:
    """The name of a field in the file: its own, with an underscore if the standard gives that one too few bits."""
    if name not in set(point_format.dimension_names):
        return name
    known = point_format.dimension_by_name(name)
    whole = known.kind.name == "FloatingPoint" or np.array_equal(column, np.round(column))
    fits = whole and column.min() >= known.min and column.max() <= known.max
    return name if fits else f"{name}_"


def _unit(reach: float) -> float:
    """The finest power of ten of which two thousand million reach that far."""
    for power in POWERS_OF_TEN:
        if reach <= 2e9 * 10.0**power:
            return 10.0**power
    raise ValueError(f"cloud must reach less than 1e18 from its centre in a LAS file, got {reach}")
