"""Numbers in lines of text, for all formats that have them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import BinaryIO

import numpy as np

from p2plane.data.formats import limits
from p2plane.data.formats.content import Columns

BLOCK = 1 << 16  # rows written at once


def parse(lines: Iterable[str], delimiter: str | None = None, most: int | None = None) -> np.ndarray:
    """(N, C) float64 from lines of C numbers each; blank lines do not count."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there was no data
            return np.loadtxt(lines, np.float64, comments=None, delimiter=delimiter, ndmin=2, max_rows=most)
    except ValueError as error:
        raise ValueError(f"expected rows of numbers: {' '.join(str(error).split(';')[0].split())[:200]}") from None


def parse_table(lines: Iterator[str], dtype: np.dtype, count: int, available: int) -> np.ndarray:
    """(N,) records of a structured dtype with N rows, one to a line; text of ``available`` bytes is there."""
    names = dtype.names or ()
    if count == 0:
        return np.empty(0, dtype)
    limits.fits(f"{count} rows of {len(names)} numbers", 2 * len(names) * count, available + 1)
    numbers = parse(islice(lines, count))
    if numbers.shape != (count, len(names)):
        raise ValueError(f"expected {count} rows of {len(names)} numbers, got {numbers.shape[0]} of {numbers.shape[1]}")
    table = np.empty(count, dtype)
    for name, column in zip(names, numbers.T, strict=True):
        table[name] = declared(name, column, dtype[name])
    return table


def filled(lines: Iterable[str]) -> Iterator[str]:
    """The lines that are not blank."""
    return (line for line in lines if line and not line.isspace())


def lines_of(file: BinaryIO) -> Iterator[str]:
    """The lines that are left in a binary file and are not blank."""
    return filled(line.decode("ascii", "replace") for line in limits.lines(file))


def write(file: BinaryIO, columns: Columns, delimiter: str = " ") -> None:
    """Write one line for each point, every number with just the digits that give it back."""
    count = len(next(iter(columns.values())))
    for start in range(0, count, BLOCK):
        words = [_digits(column[start : start + BLOCK]) for column in columns.values()]
        file.writelines((delimiter.join(row) + "\n").encode() for row in zip(*words, strict=True))


def declared(name: str, column: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The column in the type that the header declares for it."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = column.astype(dtype)
    if dtype.kind in "iu" and not np.array_equal(values.astype(np.float64), column):
        wrong = column[values.astype(np.float64) != column][0]
        raise ValueError(f"expected {dtype.name} numbers for {name!r}, got {wrong}")
    return values


def _digits(column: np.ndarray) -> list[str]:
    if column.dtype.kind == "f" and column.dtype.itemsize < 8:  # as doubles they would have digits that mean nothing
        return column.astype(str).tolist()
    return [str(value) for value in column.tolist()]
