"""PCD files of the Point Cloud Library: text, binary and compressed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

import numpy as np

from p2plane.data.cloud import Cloud
from p2plane.data.formats import limits, rows
from p2plane.data.formats.content import COLORS, NORMALS, Columns, Content, columns_of, shown, table_of
from p2plane.data.formats.extras import needed

ENCODINGS = ("ascii", "binary", "binary_compressed")
CODES = {f"{kind.upper()}{size}": f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)} | {"F4": "f4", "F8": "f8"}
KEYS = ("FIELDS", "SIZE", "TYPE", "COUNT", "WIDTH", "HEIGHT", "POINTS", "DATA")


@dataclass(frozen=True)
class Header:
    """What the header declares."""

    fields: tuple[tuple[str, np.dtype, int], ...]  # name, type, how many of them to a point
    points: int
    encoding: str

    @property
    def itemsize(self) -> int:
        """Bytes to a point."""
        return sum(dtype.itemsize * count for _, dtype, count in self.fields)

    @property
    def columns(self) -> list[tuple[str, np.dtype]]:
        """The fields with those of several numbers taken apart."""
        names = [(name if count == 1 else f"{name}_{i}", t) for name, t, count in self.fields for i in range(count)]
        return [(f"_ {i}" if name.startswith("_") else name, dtype) for i, (name, dtype) in enumerate(names)]


def read(path: Path) -> Content:
    """The points of a PCD file; the viewpoint is left aside, the points are not moved."""
    with open(path, "rb") as file:
        header = _header(file)
        left = path.stat().st_size - file.tell()
        if header.encoding == "ascii":
            lines = rows.lines_of(file)
            table = rows.parse_table(lines, np.dtype(header.columns), header.points, left)
        elif header.encoding == "binary":
            limits.fits(f"{header.points} points", header.itemsize * header.points, left)
            table = np.frombuffer(file.read(header.itemsize * header.points), np.dtype(header.columns))
        else:
            table = _decompressed(file.read(), header)
    return Content(_colored({name: table[name] for name, _ in header.columns if not name.startswith("_ ")}))


def write(file: BinaryIO, cloud: Cloud, *, ascii: bool = False, compressed: bool = False) -> None:
    """Write a cloud with all that it holds: binary, or as text, or compressed."""
    columns = _packed(columns_of(cloud))
    codes = [column.dtype.str[1:].upper() for column in columns.values()]
    lines = ["# .PCD v0.7 - Point Cloud Data file format", "VERSION 0.7", f"FIELDS {' '.join(columns)}"]
    lines += [f"SIZE {' '.join(code[1:] for code in codes)}", f"TYPE {' '.join(code[0] for code in codes)}"]
    lines += [f"COUNT {' '.join('1' for _ in codes)}", f"WIDTH {len(cloud)}", "HEIGHT 1"]
    encoding = "ascii" if ascii else "binary_compressed" if compressed else "binary"
    lines += ["VIEWPOINT 0 0 0 1 0 0 0", f"POINTS {len(cloud)}", f"DATA {encoding}", ""]
    file.write("\n".join(lines).encode())
    if ascii:
        rows.write(file, columns)
    elif compressed:
        table = table_of(columns)
        file.write(_compress(b"".join(table[name].tobytes() for name in columns)))
    else:
        file.write(table_of(columns).tobytes())


def _header(file: BinaryIO) -> Header:
    found = dict[str, list[str]]()
    for words in limits.header_lines(file, "DATA"):
        if words[0] in KEYS:
            found[words[0]] = words[1:]
        elif not words[0].startswith("#") and words[0] not in ("VERSION", "VIEWPOINT"):
            raise ValueError(f"expected a line of a PCD header, got {' '.join(words)[:60]!r}")
    names = found.get("FIELDS", [])
    counts = [limits.count("COUNT", word) for word in found.get("COUNT", ["1"] * len(names))]
    kinds, sizes = found.get("TYPE", []), found.get("SIZE", [])
    if not names or len({len(names), len(kinds), len(sizes), len(counts)}) > 1:
        raise ValueError("expected one TYPE, SIZE and COUNT for each of the FIELDS, got another number of them")
    codes = [kind + size for kind, size in zip(kinds, sizes, strict=True)]
    if wrong := [code for code in codes if code not in CODES]:
        raise ValueError(f"expected types and sizes out of {shown(CODES)}, got {wrong[0][:40]!r}")
    limits.columns(sum(counts))
    fields = tuple((name, np.dtype("<" + CODES[code]), n) for name, code, n in zip(names, codes, counts, strict=True))
    header = Header(fields, _points(found), " ".join(found["DATA"]))
    names = [name for name, _ in header.columns]
    if len(set(names)) < len(names):
        raise ValueError(f"expected different FIELDS, got {shown(names)}")
    if header.encoding not in ENCODINGS:
        raise ValueError(f"expected DATA out of {shown(ENCODINGS)}, got {header.encoding[:40]!r}")
    return header


def _points(found: dict[str, list[str]]) -> int:
    numbers = {key: limits.count(key, " ".join(found[key])) for key in ("WIDTH", "HEIGHT", "POINTS") if key in found}
    grid = numbers["WIDTH"] * numbers.get("HEIGHT", 1) if "WIDTH" in numbers else numbers.get("POINTS", 0)
    if numbers.get("POINTS", grid) != grid:
        raise ValueError(f"expected WIDTH x HEIGHT = {grid} points, got POINTS {numbers['POINTS']}")
    return grid


def _decompressed(body: bytes, header: Header) -> np.ndarray:
    """(N,) records; in compressed files each field lies in one piece, for all points."""
    expected = header.itemsize * header.points
    packed, unpacked = int.from_bytes(body[:4], "little"), int.from_bytes(body[4:8], "little")
    limits.fits("the compressed points", packed, len(body) - 8)
    if unpacked != expected:
        raise ValueError(f"expected {expected} bytes for {header.points} points, got {unpacked} compressed ones")
    limits.expands("points", unpacked, packed)
    lzf = _lzf()
    with limits.contained("lzf"):
        data = lzf.decompress(body[8 : 8 + packed], unpacked) or b""  # None where there is nothing
    if len(data) != unpacked:
        raise ValueError(f"expected {unpacked} bytes after decompression, got {len(data)}")
    table = np.empty(header.points, np.dtype(header.columns))
    starts = accumulate((dtype.itemsize * count * header.points for _, dtype, count in header.fields), initial=0)
    names = iter(header.columns)
    for (_, dtype, count), start in zip(header.fields, starts, strict=False):
        piece = np.frombuffer(data, dtype, count * header.points, start).reshape(header.points, count)
        for column in piece.T:
            table[next(names)[0]] = column
    return table


def _compress(data: bytes) -> bytes:
    packed = _lzf().compress(data, 2 * len(data) + 16)  # room for data that only grows
    return len(packed).to_bytes(4, "little") + len(data).to_bytes(4, "little") + packed


def _lzf() -> ModuleType:
    return needed("lzf", "compressed PCD", "pcd")


def _colored(columns: Columns) -> Columns:
    """The columns with a packed colour, four bytes called rgb or rgba, taken apart."""
    for name in ("rgb", "rgba"):
        if name in columns and columns[name].dtype.itemsize == 4:
            packed = np.ascontiguousarray(columns.pop(name)).view("<u4")
            for color, shift in zip(COLORS[0], (16, 8, 0), strict=True):
                columns[color] = (packed >> shift & 255).astype(np.uint8)
            if name == "rgba":
                columns["alpha"] = (packed >> 24).astype(np.uint8)
    return columns


def _packed(columns: Columns) -> Columns:
    """The columns under the names of PCD, colours of a byte each packed into one number, a float by custom."""
    named = {dict(zip(NORMALS[0], NORMALS[1], strict=True)).get(name, name): column for name, column in columns.items()}
    if "red" in named and named["red"].dtype == np.uint8:
        red, green, blue = (named.pop(name).astype(np.uint32) for name in COLORS[0])
        named["rgb"] = (red << 16 | green << 8 | blue).view(np.float32)
    return named
