"""Results files: what an evaluation left behind, and the numbers that papers make of it.

A results file has one row for each pair, as CSV or Parquet; beside it, under the same name with ``.json``, is what it
came from. Tables and figures read these two and nothing else.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from p2plane.evaluation import metrics
from p2plane.evaluation.compact import TRUTH, poses, with_what_follows, without_what_follows
from p2plane.evaluation.rows import COLUMNS, POSE, TRUE_POSE
from p2plane.work.files import replacing
from p2plane.work.parquet import import_pyarrow, reading
from p2plane.work.record import read_record

SUFFIXES = (".parquet", ".csv")
RECALLED_BELOW = 0.2
"""A pair is recalled if its points end up so near to where they should, as DeepGMR counts."""
FAILED_ABOVE_DEG, FAILED_ABOVE_LENGTH = 5.0, 0.1
"""What a right pose may be off: the length is 5 % of the size of shapes of radius one, as test sets have them."""


@dataclass(frozen=True)
class Results:
    """One method on one test set, pair by pair."""

    path: Path
    columns: dict[str, np.ndarray]
    """By name, (P,) each; `index` ascends."""
    record: dict[str, Any]
    """What is in the JSON file beside it."""

    def __len__(self) -> int:
        return len(self.columns["index"])

    @cached_property
    def T_estimate(self) -> Tensor:
        """(P, 4, 4) float64."""
        return poses(self.columns, POSE)

    @cached_property
    def T_true(self) -> Tensor:
        """(P, 4, 4) float64."""
        return poses(self.columns, TRUE_POSE)

    @property
    def failed(self) -> np.ndarray:
        """(P,) bool, where a pose is off by more than a right one may be."""
        return (self.columns["angle_deg"] > FAILED_ABOVE_DEG) | (self.columns["length"] > FAILED_ABOVE_LENGTH)

    @cached_property
    def summary(self) -> dict[str, float]:
        """All numbers of this method, by name with their units."""
        angle, length = self.columns["angle_deg"], self.columns["length"]
        displacement, seconds = self.columns["displacement"], self.columns["seconds"]
        return {
            **metrics.euler_summary(self.T_estimate, self.T_true),
            **metrics.isotropic_summary(self.T_estimate, self.T_true),
            "angle_median_deg": float(np.median(angle)),
            "length_median": float(np.median(length)),
            "over_5_deg": float((angle > FAILED_ABOVE_DEG).mean()),
            "chamfer_mean": float(self.columns["chamfer"].mean()),
            "displacement_mean": float(displacement.mean()),
            "recall": float((displacement < RECALLED_BELOW).mean()),
            "fitness_mean": float(self.columns["fitness"].mean()),
            "converged": float(self.columns["converged"].mean()),
            "seconds_mean": float(seconds.mean()),
            "seconds_median": float(np.median(seconds)),
            "pairs": float(len(self)),
        }


def read_results(path: Path) -> Results:
    """A results file with its record."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no results file {path}")
    columns = _read_parquet(path) if path.suffix == ".parquet" else read_csv(path)
    if path.suffix == ".parquet":
        truth = path.with_name(TRUTH)
        columns = with_what_follows(columns, _read_parquet(truth) if truth.is_file() else None, path)
    missing = [name for name in COLUMNS if name not in columns]
    if missing or not len(columns["index"]):
        raise ValueError(
            f"{path} must have rows with the columns of an evaluation, but {missing or 'rows'} are missing"
        )
    order = np.argsort(columns["index"])
    return Results(path, {name: column[order] for name, column in columns.items()}, read_record(path))


def find_results(folder: Path, name: str) -> Path | None:
    """The results file of that name, in whatever format it is; None where there is none."""
    if name == Path(TRUTH).stem:
        return None
    return next((path for suffix in SUFFIXES if (path := folder / f"{name}{suffix}").is_file()), None)


def write_parquet(path: Path, columns: dict[str, np.ndarray]) -> None:
    """Columns as Parquet, numbers with the digits of a float32."""
    import_pyarrow()
    import pyarrow  # type: ignore[import-untyped]
    from pyarrow import parquet

    table = pyarrow.table({name: _compact(name, column) for name, column in columns.items()})
    with replacing(path) as temporary:
        parquet.write_table(table, temporary, compression="zstd")


def make_compact(path: Path) -> Path:
    """Write a results file anew as `p2plane.evaluation.compact` describes, and remove the old one; the new path."""
    results = read_results(path)
    own, truth = without_what_follows(results.columns)
    target, shared = path.with_suffix(".parquet"), path.with_name(TRUTH)
    known = _read_parquet(shared) if shared.is_file() else None
    if known is None or len(known["index"]) < len(truth["index"]):
        write_parquet(shared, truth)
    write_parquet(target, own)
    read_results(target)  # before the old one goes
    if path != target:
        path.unlink()
    return target


def read_csv(path: Path) -> dict[str, np.ndarray]:
    """Columns of a CSV file, in the order of its lines."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file, restval=""))
        if lines and set(COLUMNS) - set(lines[0]):
            raise ValueError(f"there are {list(lines[0])[:5]}")
        return _typed({name: np.array([line[name] for line in lines]) for name in COLUMNS})
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{path} must have the columns of an evaluation, but {error}") from error


def _read_parquet(path: Path) -> dict[str, np.ndarray]:
    import_pyarrow()
    from pyarrow import parquet

    with reading(path):
        table = parquet.read_table(path)
        return _typed({name: table[name].to_numpy() for name in table.column_names})


def _typed(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: column if name == "flags" else column.astype(_dtype(name)) for name, column in columns.items()}


def _dtype(name: str) -> type:
    return np.int64 if name in ("index", "converged") else np.float64


def _compact(name: str, column: np.ndarray) -> np.ndarray:
    if name == "flags":
        return column
    return column.astype({"index": np.int32, "converged": np.int8}.get(name, np.float32))
