"""PLY files: text, little and big endian, with whatever elements and properties they declare."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np

from p2plane.data.cloud import Cloud
from p2plane.data.formats import limits, rows
from p2plane.data.formats.content import Content, columns_of, shown, table_of
from p2plane.data.formats.mesh import triangles
from p2plane.data.formats.ply_tables import Element, Property, read_binary, read_text

FORMATS = {"ascii": "=", "binary_little_endian": "<", "binary_big_endian": ">"}
NAMES = {"i1": "char", "u1": "uchar", "i2": "short", "u2": "ushort", "i4": "int", "u4": "uint"}
NAMES |= {"f4": "float", "f8": "double"}
TYPES = {name: code for code, name in NAMES.items()}
TYPES |= {f"{kind}{8 * size}": f"{kind[0]}{size}" for kind in ("int", "uint") for size in (1, 2, 4, 8)}
TYPES |= {"float32": "f4", "float64": "f8"}


def read(path: Path) -> Content:
    """The vertices of a PLY file, and its faces if it has them; every other element is skipped."""
    with open(path, "rb") as file:
        order, elements = _header(file)
        if order == "=":
            tables = read_text(file, elements, path.stat().st_size - file.tell())
        else:
            tables = read_binary(file.read(), elements, order)
    vertices = tables["vertex"].columns
    polygons = tables["face"].polygons if "face" in tables else None
    if polygons is None or not vertices:
        return Content(vertices)
    count = len(next(iter(vertices.values())))
    return Content(vertices, triangles(polygons.lengths, polygons.values, count))


def write(file: BinaryIO, cloud: Cloud, *, ascii: bool = False) -> None:
    """Write a cloud with all that it holds, little endian unless ``ascii``."""
    columns = {name: _storable(name, column) for name, column in columns_of(cloud).items()}
    lines = ["ply", f"format {'ascii' if ascii else 'binary_little_endian'} 1.0", f"element vertex {len(cloud)}"]
    lines += [f"property {NAMES[column.dtype.str[1:]]} {name}" for name, column in columns.items()]
    file.write("\n".join([*lines, "end_header", ""]).encode())
    if ascii:
        rows.write(file, columns)
    else:
        file.write(table_of(columns).tobytes())


def _header(file: BinaryIO) -> tuple[str, list[Element]]:
    start = file.readline(8).strip()
    if start != b"ply":
        raise ValueError(f"expected a file that begins with 'ply', got {start.decode('ascii', 'replace')!r}")
    order, elements = "", list[Element]()
    for words in limits.header_lines(file, "end_header"):
        if words[0] == "format" and len(words) >= 2 and words[1] in FORMATS:
            order = FORMATS[words[1]]
        elif words[0] == "element" and len(words) == 3:
            elements.append(Element(words[1], limits.count(f"element {words[1][:40]!r}", words[2]), []))
        elif words[0] == "property" and elements:
            elements[-1].properties.append(_property(words))
        elif words[0] not in ("comment", "obj_info", "end_header"):
            raise ValueError(f"expected a line of a PLY header, got {' '.join(words)[:60]!r}")
    _check(order, elements)
    return order, [element for element in elements if element.properties]


def _property(words: list[str]) -> Property:
    is_list = words[1:2] == ["list"]
    types = words[2:-1] if is_list else words[1:-1]
    if len(words) != (5 if is_list else 3) or any(each not in TYPES for each in types):
        raise ValueError(f"expected 'property [list type] type name' in the header, got {' '.join(words)[:60]!r}")
    if is_list and TYPES[types[0]][0] == "f":
        raise ValueError(f"expected whole numbers for the length of {words[-1][:40]!r}, got {types[0]}")
    return Property(words[-1], TYPES[types[-1]], TYPES[types[0]] if is_list else None)


def _check(order: str, elements: list[Element]) -> None:
    if not order:
        raise ValueError(f"expected a format out of {shown(FORMATS)}, got none")
    if not any(element.name == "vertex" and element.properties for element in elements):
        raise ValueError(f"expected an element 'vertex', got {shown(each.name for each in elements) or 'none'}")
    if len({element.name for element in elements}) < len(elements):
        raise ValueError(f"expected different elements, got {shown(each.name for each in elements)}")
    for element in elements:
        names = [each.name for each in element.properties]
        limits.columns(len(names))
        if len(set(names)) < len(names):
            raise ValueError(f"expected different properties in element {element.name[:40]!r}, got {shown(names)}")


def _storable(name: str, column: np.ndarray) -> np.ndarray:
    """The same numbers in a type that PLY knows: long integers become short ones or doubles."""
    if column.dtype.str[1:] in NAMES:
        return column
    for dtype in (np.int32, np.float64):
        with np.errstate(invalid="ignore"):
            stored = column.astype(dtype)
            if np.array_equal(stored.astype(column.dtype), column):
                return stored
    raise ValueError(f"fields must fit into 32 bits or a double in a PLY file, got larger integers in {name!r}")
