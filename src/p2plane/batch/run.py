"""`register_many`: a list of pairs in, a file of rows out, which a second start goes on with."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from p2plane.batch.pairs import PairFiles, PairList, open_pairs
from p2plane.batch.results import PARQUET, SUFFIXES, BatchResults, read_rows, write_parquet
from p2plane.batch.rows import KINDS, failed_row
from p2plane.batch.worker import BatchSettings, Registering
from p2plane.solve.inputs import one_of
from p2plane.work.engine import TRIES, Engine, results_of
from p2plane.work.files import alone
from p2plane.work.journal import Journal, Line, write_journal
from p2plane.work.parquet import import_pyarrow
from p2plane.work.processes import Processes, cores
from p2plane.work.progress import Progress
from p2plane.work.record import agreed_record, environment, now, write_record

ENGINES = ("processes", "ray")


def register_many(
    pairs: str | os.PathLike[str] | Sequence[Any],
    out: str | os.PathLike[str],
    *,
    method: str = "auto",
    hold: Sequence[str] = (),
    max_points: int = 200_000,
    time_limit: float | None = None,
    seed: int = 0,
    engine: str = "processes",
    processes: int | None = None,
    address: str | None = None,
    retry_failed: bool = False,
    show_progress: bool = True,
) -> BatchResults:
    """Register every pair of a list as `register` does, into a file with one row for each, in the order of the list.

    Rows go to the disk as they come, and a second start with the same list and settings goes on where the first one
    ended, however it ended. A pair that fails is a row with its error. A worker that is killed is replaced, and its
    pair done again; a pair that four workers did not survive is given up. The file does not depend on any of this, nor
    on the engine and the number of processes (but a time limit makes it depend on the speed of the machine). Memory
    does not grow with the list, but for eight bytes a pair.

    Workers are processes of their own, so a script needs ``if __name__ == "__main__":`` around the call.

    Args:
        pairs: a CSV file of the columns source, target and perhaps initial (the file of a first guess of the pose),
            with names relative to that file; a folder, whose clouds are registered each onto the one before, in the
            order of their names; or a sequence of such tuples of names.
        out: the results file, ``.csv`` or ``.parquet``; its record, ``.json``, is written beside it.
        method: as in `register`, like the next four.
        hold: directions to hold.
        max_points: larger clouds are thinned to so many.
        time_limit: seconds for each pair after which no other search is begun.
        seed: of what is random; each pair has its own, made of this one and its place in the list.
        engine: "processes" on this machine, or "ray".
        processes: of one thread each; None for as many as there are cores.
        address: of a Ray cluster, "auto" or "ray://host:10001"; None for this machine alone. Its machines must see the
            files under the same names.
        retry_failed: do the pairs again whose row has an error.
        show_progress: whether a bar is shown where there is a terminal.
    """
    settings = BatchSettings(method, tuple(hold), max_points, time_limit, seed)
    out = Path(out)
    _refuse(out, engine, processes, address)
    listed = open_pairs(pairs)
    out.parent.mkdir(parents=True, exist_ok=True)
    with alone(out):
        record = _agreed_record(out, _described(listed, settings))
        write_record(out, record)  # first: without it, rows would be of nobody knows what
        with _open_journal(out, listed.count, retry_failed) as journal:
            if journal.done < listed.count:
                record["environment"] = environment(record, engine=engine, processes=processes)
                write_record(out, record)
                with _engine(engine, Registering(settings), processes, address) as workers:
                    _run(workers, listed, journal, show_progress)
                record["environment"]["finished"] = now()
            return _finished(out, journal, record)


def _run(workers: Engine, listed: PairList, journal: Journal, show_progress: bool) -> None:
    failed = 0
    with Progress("batch", listed.count, journal.done, show_progress) as progress:
        for row in results_of(workers, _missing(listed, journal), _given_up):
            journal.append([row])
            failed += bool(row["error"])
            progress.advance(1, f"{failed} failed" if failed else "")


def _missing(listed: PairList, journal: Journal) -> Iterator[PairFiles]:
    wanted = (indices[0] for indices in journal.missing())
    index = next(wanted, None)
    for pair in listed.pairs():
        if pair.index == index:
            yield pair
            index = next(wanted, None)


def _given_up(pair: PairFiles) -> dict[str, Any]:
    return failed_row(pair, f"{TRIES} workers were killed while they were on this pair: is there memory enough?")


def _engine(name: str, work: Registering, processes: int | None, address: str | None) -> Engine:
    if name == "ray":
        from p2plane.work.ray import Ray

        return Ray(work, address, processes)
    return Processes(work, processes or cores())


def _refuse(out: Path, engine: str, processes: int | None, address: str | None) -> None:
    if out.suffix not in SUFFIXES:
        raise ValueError(f"out must end with .csv or .parquet, got {out}")
    one_of("engine", engine, ENGINES)
    if processes is not None and processes < 1:
        raise ValueError(f"processes must be at least 1, got {processes}")
    if address is not None and engine != "ray":
        raise ValueError(f"address must go with engine 'ray', got engine {engine!r}")
    # What is missing is missed before the work rather than after it.
    if out.suffix == PARQUET:
        import_pyarrow()
    if engine == "ray":
        from p2plane.work.ray import import_ray

        import_ray()


def _described(listed: PairList, settings: BatchSettings) -> dict[str, Any]:
    """All that the rows depend on, for the record."""
    from p2plane import __version__

    chosen = asdict(settings) | {"hold": list(settings.hold)}
    return {"pairs": listed.count, "pairs_sha256": listed.digest, **chosen, "p2plane": __version__}


def _agreed_record(out: Path, settings: dict[str, Any]) -> dict[str, Any]:
    if not out.exists() and not _journal_path(out).exists():
        return {"settings": settings}
    return agreed_record(out, settings)


def _journal_path(out: Path) -> Path:
    return out.with_name(f"{out.stem}.partial.csv") if out.suffix == PARQUET else out


def _open_journal(out: Path, count: int, retry_failed: bool) -> Journal:
    path, keep = _journal_path(out), _has_no_error if retry_failed else None
    if out.suffix == PARQUET and out.exists() and not path.exists():
        write_journal(path, tuple(KINDS), count, read_rows(out))
    return Journal(path, tuple(KINDS), count, keep=keep)


def _has_no_error(line: Line) -> bool:
    return not line["error"]


def _finished(out: Path, journal: Journal, record: dict[str, Any]) -> BatchResults:
    journal.close()
    confident = failed = 0
    for row in read_rows(journal.path):
        confident, failed = confident + bool(row["confident"]), failed + bool(row["error"])
    if out.suffix == PARQUET:
        write_parquet(out, journal.path)
    write_record(out, record | {"summary": {"pairs": journal.count, "confident": confident, "failed": failed}})
    if out.suffix == PARQUET:
        journal.path.unlink()
    return BatchResults(out, journal.count, confident, failed)
