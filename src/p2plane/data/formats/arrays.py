"""NumPy files: one table in an NPY file, named arrays in an NPZ file; never a pickle."""

from __future__ import annotations

import math
import re
import zipfile
from pathlib import Path
from typing import IO, BinaryIO

import numpy as np

from p2plane.data.cloud import Cloud
from p2plane.data.formats import limits
from p2plane.data.formats.content import COLORS, NORMALS, POINTS, Columns, Content, array, shown, unnamed

TRIPLES = {"points": POINTS[0], "normals": NORMALS[0], "colors": COLORS[0]}
_TEXT = re.compile(r"\s*\{\s*'descr'\s*:\s*'[<>|=][US]\d+'")
_HEADER = re.compile(
    r"\s*\{\s*'descr'\s*:\s*'([<>|=](?:f[248]|[iu][1248]|b1))'\s*,\s*'fortran_order'\s*:\s*(True|False)\s*,"
    r"\s*'shape'\s*:\s*\(([\d\s,]*)\)\s*,?\s*\}\s*"
)


def read_npy(path: Path) -> Content:
    """The table (N, C) of an NPY file, read as text columns without names are."""
    with open(path, "rb") as file:
        return Content(unnamed(plain_array(file, path.stat().st_size)))


def read_npz(path: Path) -> Content:
    """The arrays of an NPZ file: points, normals and colors (N, 3), and as fields all that are (N,)."""
    arrays = _members(path)
    if "points" not in arrays:
        raise ValueError(f"expected an array 'points', got {shown(arrays) or 'none'}")
    count = arrays["points"].shape[:1]
    columns = Columns()
    for name, values in arrays.items():
        if name in TRIPLES:
            if values.shape != (*count, 3):
                raise ValueError(f"expected {name} of shape {(*(count or ('N',)), 3)}, got {values.shape}")
            columns |= zip(TRIPLES[name], values.T, strict=True)
        elif values.shape == count and name.lower() not in {word for names in TRIPLES.values() for word in names}:
            columns[name] = values
    return Content(columns)


def write_npy(file: BinaryIO, cloud: Cloud) -> None:
    """Write the points and normals, (N, 3) or (N, 6); an (N, 4) table with the intensity if that is all there is."""
    table = [array(cloud.points)]
    if cloud.normals is not None:
        table.append(array(cloud.normals))
    elif "intensity" in cloud.fields:
        table.append(array(cloud.fields["intensity"])[:, None].astype(table[0].dtype))
    np.lib.format.write_array(file, np.concatenate(table, axis=1), allow_pickle=False)


def write_npz(file: BinaryIO, cloud: Cloud, *, compressed: bool = False) -> None:
    """Write arrays points, normals and colors, and one for each field."""
    arrays = {"points": cloud.points, "normals": cloud.normals, "colors": cloud.colors}
    if taken := sorted(set(arrays) & set(cloud.fields)):
        raise ValueError(f"fields must have names that mean nothing else in a file, got {taken[0]!r}")
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, values in (arrays | dict(cloud.fields)).items():
            if values is not None:
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array(values), allow_pickle=False)


def _members(path: Path) -> dict[str, np.ndarray]:
    arrays, left = {}, limits.ALWAYS_ALLOWED + limits.EXPANSION * path.stat().st_size
    with limits.contained("zipfile"), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            left -= member.file_size
            if left < 0:
                raise ValueError(f"expected less in {path.stat().st_size} bytes, got {member.file_size} in one array")
            if member.filename.endswith(".npy"):
                with archive.open(member) as file:
                    found = plain_array(file, member.file_size)
                arrays[member.filename[:-4]] = found
    return arrays


def plain_array(file: IO[bytes], size: int) -> np.ndarray:
    """The one array of plain numbers in a stream of that many bytes."""
    start = file.read(8)
    if start[:6] != b"\x93NUMPY" or len(start) < 8:
        raise ValueError("expected a file that begins with '\\x93NUMPY', got something else")
    digits = file.read(2 if start[6] == 1 else 4)
    length = int.from_bytes(digits, "little")
    limits.fits("the header", length, min(limits.LONGEST_HEADER, size))
    text = file.read(length).decode("latin1")
    if _TEXT.match(text):
        return np.empty(0)  # words are no numbers, but no harm either
    found = _HEADER.fullmatch(text)
    if not found:
        raise ValueError(f"expected the header of a plain array of numbers, got {text[:60]!r}")
    dtype, shape = np.dtype(found[1]), tuple(int(word) for word in found[3].split(",") if word.strip())
    count = math.prod(shape)
    if count == 0:
        return np.empty(0, dtype)
    limits.fits(f"an array of shape {shape}", count * dtype.itemsize, size - len(start) - len(digits) - length)
    data = file.read(count * dtype.itemsize)
    limits.fits(f"an array of shape {shape}", count * dtype.itemsize, len(data))
    return np.frombuffer(data, dtype).reshape(shape, order="F" if found[2] == "True" else "C")
