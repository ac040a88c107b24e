"""Results of a batch in a file, read row by row, whether it is CSV or Parquet."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from p2plane.batch.rows import INFORMATION, KINDS, MEASURES, POSE
from p2plane.work.files import replacing
from p2plane.work.parquet import reading

PARQUET = ".parquet"
SUFFIXES = (".csv", PARQUET)
AT_ONCE = 10_000  # rows in memory


@dataclass(frozen=True)
class PairResult:
    """The row of a pair."""

    index: int
    """Its place in the list."""
    source: str
    target: str
    error: str
    """Why there is no pose; empty where there is one."""
    T_target_source: Tensor | None
    """(4, 4) float64; None where the pair failed."""
    information: Tensor | None
    """(6, 6) float64, as in `Registration`."""
    confident: bool
    measures: dict[str, float]
    """`confidence`, `fitness` and so on, as in `Registration`; empty where the pair failed."""
    undetermined: str
    warnings: str


@dataclass(frozen=True)
class BatchResults:
    """The results of a list of pairs, in a file. Iterating reads it, a few rows at a time."""

    path: Path
    count: int
    confident: int
    """How many answers may be used without a second look."""
    failed: int
    """How many pairs have an error instead of a pose."""

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[PairResult]:
        return map(_result, read_rows(self.path))


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a results file, typed, one after the other; absent numbers are None."""
    if path.suffix == PARQUET:
        yield from _parquet_rows(path)
        return
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.reader(file)
        try:
            if (columns := next(reader, [])) != list(KINDS):
                raise ValueError(f"there are the columns {columns[:5]}")
            yield from map(_row, reader)
        except (ValueError, csv.Error) as error:
            is_text = not isinstance(error, UnicodeDecodeError)  # else lines are not known yet
            where = f" in line {reader.line_num}" if is_text else ""
            raise ValueError(f"{path} must hold the results of a batch, but{where} {error}") from error


def write_parquet(path: Path, journal: Path) -> None:
    """The rows of a CSV file as Parquet, a few at a time."""
    import pyarrow  # type: ignore[import-untyped]
    from pyarrow import parquet

    types = {int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_(), str: pyarrow.string()}
    schema = pyarrow.schema([(name, types[kind]) for name, kind in KINDS.items()])
    rows = read_rows(journal)
    with replacing(path) as temporary, parquet.ParquetWriter(temporary, schema, compression="zstd") as writer:
        while some := list(islice(rows, AT_ONCE)):
            writer.write_table(pyarrow.Table.from_pylist(some, schema))


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    from pyarrow import parquet

    with reading(path), parquet.ParquetFile(path) as file:
        if file.schema_arrow.names != list(KINDS):
            raise ValueError(f"there are the columns {file.schema_arrow.names[:5]}")
        for some in file.iter_batches(AT_ONCE):
            yield from some.to_pylist()


def _row(cells: list[str]) -> dict[str, Any]:
    if len(cells) != len(KINDS):
        raise ValueError(f"there are {len(cells)} cells in place of {len(KINDS)}")
    return {name: _typed(cell, kind) for (name, kind), cell in zip(KINDS.items(), cells, strict=True)}


def _typed(text: str, kind: type) -> Any:
    if kind is str:
        return text
    if not text:
        return None
    return text == "1" if kind is bool else kind(text)


def _result(row: dict[str, Any]) -> PairResult:
    failed = bool(row["error"])
    return PairResult(
        row["index"],
        row["source"],
        row["target"],
        row["error"],
        None if failed else torch.tensor([row[name] for name in POSE], dtype=torch.float64).view(4, 4),
        None if failed else _symmetric([row[name] for name in INFORMATION]),
        bool(row["confident"]),
        {} if failed else {name: row[name] for name in MEASURES},
        row["undetermined"],
        row["warnings"],
    )


def _symmetric(upper: list[float]) -> Tensor:
    """(6, 6) from the entries on and above the diagonal, row by row."""
    matrix = torch.zeros(6, 6, dtype=torch.float64)
    rows, columns = torch.triu_indices(6, 6)
    matrix[rows, columns] = matrix[columns, rows] = torch.tensor(upper, dtype=torch.float64)
    return matrix
