"""Killed at any moment.

SIGKILL at ten moments each, then one run that is left alone: what it ends with must be what an undisturbed run gives.
"""

from __future__ import annotations

import hashlib
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from p2plane.batch import register_many
from p2plane.batch.results import read_rows
from p2plane.evaluation.results import Results
from p2plane.evaluation.rows import COLUMNS
from p2plane.evaluation.run import evaluate
from p2plane.training import train
from tests.batch.lists import SETTINGS, write_list
from tests.data.test_download import Server, Visitor, zipped
from tests.evaluation.tiny import tiny_evaluation, tiny_weights
from tests.training.tiny import as_arguments, assert_equal, columns, tiny, weights
from torture.conftest import Note
from torture.runs import KILLS, completed, killed_runs, killed_workers, p2plane, python, rows_in

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc"),
    pytest.mark.limit(400),
]

PAIRS = 150


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_list(tmp_path_factory.mktemp("pairs"), PAIRS)


@pytest.fixture(scope="module")
def batch_rows(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    out = tmp_path_factory.mktemp("undisturbed") / "many.csv"
    register_many(pairs, out, processes=2, **SETTINGS)
    return list(read_rows(out))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_batch_killed_as_a_whole(pairs: Path, batch_rows: list[dict], tmp_path: Path, note: Note, ending: str) -> None:
    out, log = tmp_path / "out" / f"many.{ending}", tmp_path / "log"
    start = partial(_batch, pairs, out, log)
    killed = killed_runs(start, partial(rows_in, _growing(out)), PAIRS, seed=len(ending))
    completed(start(), log)
    assert list(read_rows(out)) == batch_rows
    assert {path.name for path in out.parent.iterdir()} == {out.name, "many.json"}
    note(
        f"`batch` of {PAIRS} pairs into .{ending}, two workers; the run killed {killed} times and started again",
        "each row there once, equal to those of an undisturbed run; nothing else is left in the folder",
    )


def test_batch_whose_workers_are_killed(pairs: Path, batch_rows: list[dict], tmp_path: Path, note: Note) -> None:
    out, log = tmp_path / "out" / "many.csv", tmp_path / "log"
    process = _batch(pairs, out, log)
    killed_workers(process, partial(rows_in, [out]), PAIRS, seed=1)
    completed(process, log)
    assert list(read_rows(out)) == batch_rows
    assert {path.name for path in out.parent.iterdir()} == {out.name, "many.json"}
    note(
        f"`batch` of {PAIRS} pairs; one of its two workers killed, {KILLS} times in one run",
        "the run goes on by itself; each row there once, equal to those of an undisturbed run",
    )


def test_evaluation(tmp_path: Path, note: Note) -> None:
    count, method = 300, tiny_weights(tmp_path)
    out, log = tmp_path / "out" / "tiny.parquet", tmp_path / "log"
    arguments = ["evaluate", "--method", str(method), "--data", "synthetic-cpu", "--pairs", str(count)]
    arguments += ["--points", "64", "--batch", "3", "--processes", "2", "--out", str(out)]
    start = partial(p2plane, *arguments, log=log)
    killed = killed_runs(start, partial(rows_in, _growing(out)), count, seed=3)
    completed(start(), log)
    evaluation = tiny_evaluation(method, pairs=count)
    expected = evaluate(evaluation, tmp_path / "undisturbed.parquet", processes=1, show_progress=False)
    _assert_same_table(evaluate(evaluation, out, processes=1, show_progress=False), expected)
    assert {path.name for path in out.parent.iterdir()} == {out.name, "tiny.json"}
    note(
        f"`evaluate` of {count} pairs, two workers; killed {killed} times and started again",
        "the table of an undisturbed run, row for row, but for the times",
    )


def test_training(tmp_path: Path, note: Note) -> None:
    steps, folder, log = 40, tmp_path / "killed", tmp_path / "log"
    changes = "checkpoint.steps=1", f"budget.steps={steps}"
    train(tiny(*changes), tmp_path / "alone")
    start = partial(p2plane, "train", *as_arguments(*changes), "--out", str(folder), log=log)
    killed = killed_runs(start, partial(_steps, folder), steps, seed=4)
    completed(start(), log)
    for name in ("last", "best"):
        assert_equal(weights(folder, name), weights(tmp_path / "alone", name))
    logged = "step", "loss", "angle_deg", "validation_angle_mean_deg"
    assert columns(folder, *logged) == columns(tmp_path / "alone", *logged)
    assert not [path for path in folder.rglob("*") if path.name.endswith(".part")]
    note(
        f"`train` for {steps} steps, a checkpoint after each; killed {killed} times and started again",
        "last and best weights equal those of an undisturbed run bit by bit, and so does the log",
    )


def test_download(slow_server: tuple[str, bytes], tmp_path: Path, note: Note) -> None:
    url, content = slow_server
    folder, log = tmp_path / "data", tmp_path / "log"
    digits = hashlib.sha256(content).hexdigest()
    archive = f"Archive('shapes', ({url!r},), checksum='sha256:{digits}', bytes={len(content)})"
    script = f"from p2plane.data.download import Archive, download; download({archive}, {str(folder)!r})"
    start = partial(python, script, log=log)
    killed = killed_runs(start, partial(_arrived, folder, len(content)), 1000 + len(FILES), seed=5)
    completed(start(), log)
    assert {path.name: path.read_bytes() for path in (folder / "shapes").iterdir()} == FILES
    assert {path.name for path in folder.iterdir()} == {"shapes", ".shapes.lock"}
    note(
        f"download of {len(FILES)} files from a slow server; killed {killed} times, on the way and while unpacking",
        "the folder is whole, and nothing but the lock lies beside it",
    )


FILES = {f"shape{index}.bin": random.Random(index).randbytes(300) for index in range(2000)}


@pytest.fixture
def slow_server() -> Iterator[tuple[str, bytes]]:
    """An address that gives an archive in small pieces, or what is left of it, and the archive."""
    server, content = Server(), zipped(FILES)
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
    thread.start()
    yield server.page("shapes.zip", partial(_drip, content=content)), content
    server.shutdown()
    thread.join()
    server.server_close()


def _drip(visitor: Visitor, content: bytes, pieces: int = 40) -> None:
    asked = re.fullmatch(r"bytes=(\d+)-", visitor.headers.get("Range", ""))
    start = int(asked[1]) if asked else 0
    visitor.send_response(206 if start else 200)
    visitor.send_header("Content-Length", str(len(content) - start))
    if start:
        visitor.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
    size = len(content) // pieces
    try:
        visitor.end_headers()
        for at in range(start, len(content), size):
            visitor.wfile.write(content[at : at + size])
            visitor.wfile.flush()
            time.sleep(0.02)
    except ConnectionError:  # the client was killed
        return


def _arrived(folder: Path, whole: int) -> int:
    """Thousandths of the archive, and then files out of it, while they come."""
    if (folder / "shapes").is_dir():
        return sys.maxsize
    try:
        here = 1000 * (folder / "shapes.zip.part").stat().st_size // whole
        return here + sum(map(_files, folder.glob(".shapes-*/content")))
    except FileNotFoundError:  # not there yet, or moved meanwhile
        return 0


def _files(folder: Path) -> int:
    """None where they are those of an earlier run."""
    return sum(1 for _ in folder.iterdir()) if time.time() - folder.stat().st_mtime < 1 else 0


def _batch(pairs: Path, out: Path, log: Path) -> subprocess.Popen:
    return p2plane("batch", str(pairs), "-o", str(out), "--method", "initial", "--processes", "2", log=log)


def _growing(out: Path) -> list[Path]:
    """The file that rows go to, or else the finished one."""
    return [out.with_name(f"{out.stem}.partial.csv")] if out.suffix == ".parquet" else [out]


def _steps(folder: Path) -> int:
    names = [path.stem for path in (folder / "checkpoints").glob("step-*.ckpt")]
    return max((int(name.removeprefix("step-")) for name in names), default=0)


def _assert_same_table(results: Results, expected: Results) -> None:
    for name in COLUMNS:
        if name != "seconds":
            np.testing.assert_array_equal(results.columns[name], expected.columns[name], err_msg=name)
