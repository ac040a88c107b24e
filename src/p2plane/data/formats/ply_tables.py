"""The tables of a PLY file after its header: rows of numbers and of lists of numbers, in text and binary."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO

import numpy as np

from p2plane.data.formats import limits, rows
from p2plane.data.formats.content import Columns


@dataclass(frozen=True)
class Property:
    """A number of an element, or a list of numbers if ``length_type`` says how its length is stored."""

    name: str
    type: str
    length_type: str | None = None

    @property
    def is_polygon(self) -> bool:
        """Whether it is the list that holds the corners of a face."""
        return self.length_type is not None and self.name in ("vertex_indices", "vertex_index")


@dataclass(frozen=True)
class Element:
    """A table: so many rows of the same properties."""

    name: str
    count: int
    properties: list[Property]

    def __str__(self) -> str:
        return f"{self.count} rows of element {self.name[:40]!r}"

    @property
    def has_lists(self) -> bool:
        """Whether its rows may be of different lengths."""
        return any(each.length_type for each in self.properties)


@dataclass(frozen=True)
class Lists:
    """Lists of some lengths that follow one another in ``values``."""

    lengths: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class Table:
    """What an element holds: its scalars, and the corners of its polygons."""

    columns: Columns
    polygons: Lists | None = None


def read_binary(body: bytes, elements: list[Element], order: str) -> dict[str, Table]:
    """The tables by name, from bytes in an order, ``<`` or ``>``."""
    tables, offset = {}, 0
    for element in elements:
        read = _ragged if element.has_lists else _regular
        tables[element.name], offset = read(body, offset, element, order)
    return tables


def read_text(file: BinaryIO, elements: list[Element], available: int) -> dict[str, Table]:
    """The tables by name, from the lines of ``available`` bytes of text."""
    lines = rows.lines_of(file)
    tables = {}
    for element in elements:
        if element.has_lists:
            limits.fits(str(element), element.count, available + 1)
            tables[element.name] = _text_lists(lines, element)
        else:
            dtype = np.dtype([(each.name, each.type) for each in element.properties])
            table = rows.parse_table(lines, dtype, element.count, available)
            tables[element.name] = Table({name: table[name] for name in dtype.names or ()})
    return tables


def _regular(
    body: bytes, offset: int, element: Element, order: str, lengths: tuple[int, ...] = ()
) -> tuple[Table, int]:
    """An element whose lists, if it has any, have these lengths in every row, and where the next element begins."""
    layout, left = list[tuple[str, str, tuple[int, ...]]](), iter(lengths)
    for i, each in enumerate(element.properties):
        if each.length_type:
            layout.append((f"length {i}", order + each.length_type, ()))
        layout.append((f"{i}", order + each.type, (next(left),) if each.length_type else ()))
    width = sum(np.dtype(code).itemsize * (shape[0] if shape else 1) for _, code, shape in layout)
    limits.fits(str(element), width * element.count, len(body) - offset)
    table = np.frombuffer(body, np.dtype(layout), element.count, offset) if width else np.empty(0, np.dtype(layout))
    columns, polygons, left = Columns(), None, iter(lengths)
    for i, each in enumerate(element.properties):
        if not each.length_type:
            columns[each.name] = table[f"{i}"]
        elif (table[f"length {i}"] != (length := next(left))).any():
            raise ValueError("expected lists of the same length, got different ones")
        elif each.is_polygon:
            polygons = Lists(np.full(len(table), length), table[f"{i}"].reshape(-1))
    return Table(columns, polygons), offset + width * element.count


def _ragged(body: bytes, offset: int, element: Element, order: str) -> tuple[Table, int]:
    """An element with lists: at once if all rows have the lengths of the first one, else row by row."""
    limits.fits(str(element), element.count, len(body) - offset)
    _, lengths, _ = _walk(body, offset, element, order, min(element.count, 1))
    first = tuple(each[0] if each else 0 for each in lengths)
    try:
        return _regular(body, offset, element, order, first)
    except ValueError:  # lengths differ, or the file ends too soon for these
        parts, lengths, end = _walk(body, offset, element, order, element.count)
    columns, polygons, left = Columns(), None, iter(lengths)
    for each, part in zip(element.properties, parts, strict=True):
        values = np.frombuffer(part, order + each.type)
        if not each.length_type:
            columns[each.name] = values
        elif (own := next(left)) is not None and each.is_polygon:
            polygons = Lists(np.array(own, dtype=np.int64), values)
    return Table(columns, polygons), end


def _walk(
    body: bytes, offset: int, element: Element, order: str, count: int
) -> tuple[list[bytearray], list[array[int]], int]:
    """The bytes of every property and the lengths of every list, row by row, and where that ends."""
    parts = [bytearray() for _ in element.properties]
    lengths = [array("q") for each in element.properties if each.length_type]
    for _ in range(count):
        own = iter(lengths)
        for each, part in zip(element.properties, parts, strict=True):
            size = int(each.type[1:])
            if each.length_type:
                length, offset = _length(body, offset, each.length_type, order)
                next(own).append(length)
                size *= length
            limits.fits(f"property {each.name[:40]!r}", size, len(body) - offset)
            part += body[offset : offset + size]
            offset += size
    return parts, lengths, offset


def _length(body: bytes, offset: int, code: str, order: str) -> tuple[int, int]:
    end = offset + int(code[1:])
    length = int.from_bytes(body[offset:end], "little" if order == "<" else "big", signed=code[0] == "i")
    if not 0 <= length <= len(body):
        raise ValueError(f"expected the length of a list, got {length}")
    return length, end


def _text_lists(lines: Iterator[str], element: Element) -> Table:
    values = [array("d") for _ in element.properties]
    lengths = [array("q") for _ in element.properties]
    found = 0
    for line in islice(lines, element.count):
        words, start, found = line.split(), 0, found + 1
        for each, numbers, own in zip(element.properties, values, lengths, strict=True):
            length = 1
            if each.length_type:
                length = limits.count(f"property {each.name[:40]!r}", words[start] if start < len(words) else "")
                start += 1
            if length > len(words) - start:
                raise ValueError(f"expected {length} numbers for property {each.name[:40]!r}, got {line[:60]!r}")
            numbers.extend(map(float, words[start : start + length]))
            own.append(length)
            start += length
    if found != element.count:
        raise ValueError(f"expected {element}, got {found}")
    columns, polygons = Columns(), None
    for each, numbers, own in zip(element.properties, values, lengths, strict=True):
        if not each.length_type:
            columns[each.name] = rows.declared(each.name, np.array(numbers), np.dtype(each.type))
        elif each.is_polygon:
            polygons = Lists(np.array(own, dtype=np.int64), np.array(numbers))
    return Table(columns, polygons)
