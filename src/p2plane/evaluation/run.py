"""Run a method over a test set, into a file that a second start goes on with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from p2plane.evaluation.processes import rows_of_batches
from p2plane.evaluation.results import Results, read_csv, read_results, write_parquet
from p2plane.evaluation.rows import COLUMNS
from p2plane.evaluation.worker import Evaluation, Worker
from p2plane.work.files import alone
from p2plane.work.journal import Journal, write_journal
from p2plane.work.parquet import import_pyarrow
from p2plane.work.processes import cores
from p2plane.work.progress import Progress
from p2plane.work.record import agreed_record, environment, now, read_record, write_record

PARQUET = ".parquet"
DIGITS = 9  # which is what a float32 holds


def evaluate(
    evaluation: Evaluation, out: str | os.PathLike, *, processes: int | None = None, show_progress: bool = True
) -> Results:
    """The results of a method on a test set: those of the file, after running what is missing there.

    The process may be killed at any moment; the next start goes on with what is missing. Numbers depend neither on the
    number of processes nor on interruptions; times do. More pairs may be asked for later, fewer may not.

    Args:
        evaluation: what is run.
        out: the results file, ``.csv`` or ``.parquet``; its record, ``.json``, is written beside it.
        processes: of one thread each; None for as many as there are cores, and 1 for this one alone.
        show_progress: whether a bar is shown where there is a terminal.
    """
    out = Path(out)
    if out.suffix not in (".csv", PARQUET):
        raise ValueError(f"out must end with .csv or .parquet, got {out}")
    if processes is not None and processes < 1:
        raise ValueError(f"processes must be at least 1, got {processes}")
    if out.suffix == PARQUET:
        import_pyarrow()  # missed before the work rather than after it
    worker = Worker.start(evaluation)
    out.parent.mkdir(parents=True, exist_ok=True)
    with alone(out):
        record = _agreed_record(out, worker.settings())
        write_record(out, record)  # first: without it, rows would be of nobody knows what
        with _open_journal(out, worker) as journal:
            if journal.done < journal.count:
                processes = processes or cores()
                record["environment"] = environment(record, processes=processes)
                write_record(out, record)
                _run(worker, journal, processes, show_progress)
                record["environment"]["finished"] = now()
            return _finished(out, journal, record)


def _run(worker: Worker, journal: Journal, processes: int, show_progress: bool) -> None:
    angles: list[float] = []
    with Progress(worker.evaluation.data, journal.count, journal.done, show_progress) as progress:
        for rows in rows_of_batches(worker, journal.missing(), processes):
            journal.append(rows)
            angles += [row["angle_deg"] for row in rows]
            progress.advance(len(rows), f"median {np.median(angles):.3g} deg")


def _agreed_record(out: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """The record to go on with: that of the file, if it is of the same settings."""
    if not out.exists() and not _journal_path(out).exists():
        return {"settings": settings}
    record = agreed_record(out, settings, free=("pairs",))
    before = read_record(out)["settings"]["pairs"]
    if before > settings["pairs"]:
        raise ValueError(f"{out} is of {before} pairs, got pairs = {settings['pairs']}; use another file")
    return record


def _open_journal(out: Path, worker: Worker) -> Journal:
    path, count = _journal_path(out), worker.count
    if out.suffix == PARQUET and out.exists() and not path.exists():
        columns = {name: column.tolist() for name, column in read_results(out).columns.items()}
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        write_journal(path, COLUMNS, count, rows, digits=DIGITS)
    return Journal(path, COLUMNS, count, group=worker.batch_size, digits=DIGITS)


def _journal_path(out: Path) -> Path:
    return out.with_name(f"{out.stem}.partial.csv") if out.suffix == PARQUET else out


def _finished(out: Path, journal: Journal, record: dict[str, Any]) -> Results:
    journal.close()
    if out.suffix == PARQUET:
        write_parquet(out, read_csv(journal.path))
    results = read_results(out)
    record["summary"] = results.summary
    write_record(out, record)
    if out.suffix == PARQUET:
        journal.path.unlink()
    return Results(out, results.columns, record)
