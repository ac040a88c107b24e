"""Run a method over a test set, into a file that a second start goes on with."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from p2plane.evaluation.journal import Journal, alone
from p2plane.evaluation.processes import cores, rows_of_batches
from p2plane.evaluation.progress import Progress
from p2plane.evaluation.results import (
    Results,
    columns_of,
    import_pyarrow,
    read_record,
    read_results,
    write_parquet,
    write_record,
)
from p2plane.evaluation.worker import Evaluation, Worker

PARQUET = ".parquet"


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
        journal = _open_journal(out, worker.batches())
        if journal.missing:
            processes = processes or cores()
            record["environment"] = _environment(record, processes)
            write_record(out, record)
            _run(worker, journal, processes, show_progress)
            record["environment"]["finished"] = _now()
        return _finished(out, journal, record)


def _run(worker: Worker, journal: Journal, processes: int, show_progress: bool) -> None:
    total = sum(map(len, worker.batches()))
    with Progress(worker.evaluation.data, total, len(journal.lines), show_progress) as progress:
        for rows in rows_of_batches(worker, journal.missing, processes):
            journal.append(rows)
            progress.advance([row["angle_deg"] for row in rows])


def _agreed_record(out: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """The record to go on with: that of the file, if it is of the same settings."""
    if not out.exists() and not _journal_path(out).exists():
        return {"settings": settings}
    record = read_record(out)
    before = record["settings"]
    different = [name for name in {**before, **settings} if before.get(name) != settings.get(name) and name != "pairs"]
    if different:
        name = different[0]
        raise ValueError(
            f"{out} was begun with {name} = {before.get(name)}, got {settings.get(name)}; "
            "use the same settings, or another file"
        )
    if before["pairs"] > settings["pairs"]:
        raise ValueError(f"{out} is of {before['pairs']} pairs, got pairs = {settings['pairs']}; use another file")
    return record | {"settings": settings}


def _open_journal(out: Path, batches: Sequence[Sequence[int]]) -> Journal:
    path = _journal_path(out)
    if out.suffix == PARQUET and out.exists() and not path.exists():
        columns = read_results(out).columns
        rows = [{name: column[i] for name, column in columns.items()} for i in range(len(columns["index"]))]
        journal = Journal(path, [])
        journal.append(rows)
        journal.close()
    return Journal(path, batches)


def _journal_path(out: Path) -> Path:
    return out.with_name(f"{out.stem}.partial.csv") if out.suffix == PARQUET else out


def _finished(out: Path, journal: Journal, record: dict[str, Any]) -> Results:
    journal.close()
    if out.suffix == PARQUET:
        write_parquet(out, columns_of(list(journal.lines.values())))
    results = read_results(out)
    record["summary"] = results.summary
    write_record(out, record)
    if out.suffix == PARQUET:
        journal.path.unlink()
    return Results(out, results.columns, record)


def _environment(record: dict[str, Any], processes: int) -> dict[str, Any]:
    """What times depend on, and when it was."""
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "processes": processes,
        "started": record.get("environment", {}).get("started", _now()),
    }


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %z")
