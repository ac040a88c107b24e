"""Text files: one point to a line, with or without a header that names the columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np

from p2plane.data.cloud import Cloud
from p2plane.data.formats import limits, rows
from p2plane.data.formats.content import COLORS, NORMALS, POINTS, Columns, Content, array, columns_of, shown, unnamed

COMMENTS = ("#", "//")
SEPARATORS = (";", ",", "\t")
PTS = {4: (*POINTS[0], "intensity"), 6: (*POINTS[0], *COLORS[0]), 7: (*POINTS[0], "intensity", *COLORS[0])}


def read(path: Path) -> Content:
    """The points of a text file; see `unnamed` for columns without names.

    Numbers are separated by white space, commas or semicolons. What follows ``#`` or ``//`` is a comment. Names come
    from the first line, or from a comment before the first point that names as many columns, x y z among them.
    """
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        comments = list[str]()
        lines = _uncommented(limits.lines(file), comments)
        first = next(lines, "")
        expected = None
        if path.suffix.lower() == ".pts" and len(first.split()) == 1:
            expected, first = limits.count("points", first.strip()), next(lines, "")
        separator = next((each for each in SEPARATORS if each in first.strip()), None)
        words = _words(first, separator)
        limits.columns(len(words))
        if any(not _is_number(word) for word in words):
            names, before = words, list[str]()
        else:
            names, before = _names_in(comments, len(words)), [first]
        table = rows.parse(chain(before, lines), separator)
    if expected is not None and len(table) != expected:
        raise ValueError(f"expected {expected} points, as the first line says, got {len(table)}")
    return Content(_named(table, names) if names else _by_suffix(path.suffix.lower(), table))


def write(file: BinaryIO, cloud: Cloud) -> None:
    """Write all columns, under a comment that names them unless they are x y z alone."""
    columns = _columns(cloud)
    if len(columns) > 3:
        file.write(f"# {' '.join(columns)}\n".encode())
    rows.write(file, columns)


def write_csv(file: BinaryIO, cloud: Cloud) -> None:
    """Write all columns with commas between them, under a line that names them."""
    columns = {name.replace(",", "_"): column for name, column in _columns(cloud).items()}
    file.write((",".join(columns) + "\n").encode())
    rows.write(file, columns, ",")


def write_xyzn(file: BinaryIO, cloud: Cloud) -> None:
    """Write points and normals, without names."""
    if cloud.normals is None:
        raise ValueError("cloud must have normals for an .xyzn file, got none")
    rows.write(file, dict(list(_columns(cloud).items())[:6]))


def write_pts(file: BinaryIO, cloud: Cloud) -> None:
    """Write how many points there are, then the points, with their intensity if there is one."""
    file.write(f"{len(cloud)}\n".encode())
    rows.write(file, {name: column for name, column in _columns(cloud).items() if name in PTS[4]})


def _columns(cloud: Cloud) -> Columns:
    """All columns of a cloud; colours in 0..1, for a column of text cannot say that its ones are bytes."""
    columns = columns_of(cloud)
    if cloud.colors is not None:
        columns |= zip(COLORS[0], array(cloud.colors).T, strict=True)
    return columns


def _uncommented(lines: Iterator[str], comments: list[str]) -> Iterator[str]:
    """The lines without their comments; the comments that stand before the first of them go into the list."""
    collecting = True
    for line in lines:
        if "#" in line or "//" in line:
            start = min(line.find(mark) for mark in COMMENTS if mark in line)
            if collecting and len(comments) < limits.MOST_COLUMNS:
                comments.append(line[start:].lstrip("#/").strip())
            line = line[:start]
        if line and not line.isspace():
            collecting = False
            yield line


def _words(line: str, separator: str | None) -> list[str]:
    words = [word.strip().strip("\"'").strip() for word in line.strip().split(separator)]
    return [word for word in words if word or separator]


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _names_in(comments: list[str], count: int) -> list[str]:
    """Names of so many columns, x y z among them, in the last comment that has them."""
    for comment in reversed(comments):
        for separator in (None, *SEPARATORS):
            names = _words(comment, separator)
            if len(names) == count and set(POINTS[0]) <= {name.lower() for name in names}:
                return names
    return []


def _named(table: np.ndarray, names: list[str]) -> Columns:
    if len(set(names)) < len(names):
        raise ValueError(f"expected different names of columns, got {shown(names)}")
    if table.size and table.shape[1] != len(names):
        raise ValueError(f"expected {len(names)} columns, {shown(names)}, got {table.shape[1]}")
    return dict(zip(names, table.T if table.size else np.empty((len(names), 0)), strict=True))


def _by_suffix(suffix: str, table: np.ndarray) -> Columns:
    if suffix == ".xyzn":
        if table.shape[1] != 6:
            raise ValueError(f"expected six columns, points and normals, got {table.shape[1]}")
        return dict(zip((*POINTS[0], *NORMALS[0]), table.T, strict=True))
    if suffix == ".pts" and table.shape[1] in PTS:
        return dict(zip(PTS[table.shape[1]], table.T, strict=True))
    return unnamed(table)
