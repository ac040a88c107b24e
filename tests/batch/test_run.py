"""The results of a list of pairs do not depend on what befell the run: killed workers, a killed run, another engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from p2plane import save_cloud
from p2plane.batch import BatchResults, register_many
from p2plane.batch.results import read_rows, write_parquet
from p2plane.cli import main
from tests.batch.lists import BROKEN, GUESSED, MISSING, NO_POSE, SETTINGS, T_true, write_list

COUNT = 40


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_list(tmp_path_factory.mktemp("pairs"), COUNT)


@pytest.fixture(scope="module")
def undisturbed(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> BatchResults:
    return register_many(pairs, tmp_path_factory.mktemp("results") / "many.csv", processes=2, **SETTINGS)


def test_every_pair_has_its_row_and_failures_say_why(undisturbed: BatchResults) -> None:
    rows = list(undisturbed)
    assert [row.index for row in rows] == list(range(COUNT))
    assert {row.index for row in rows if row.error} == {MISSING, BROKEN, NO_POSE}
    assert "there is no file" in rows[MISSING].error
    assert "nowhere, at all.npy" in rows[MISSING].error
    assert "broken.ply" in rows[BROKEN].error
    assert "4x4 matrix" in rows[NO_POSE].error
    assert rows[BROKEN].T_target_source is None
    assert (len(undisturbed), undisturbed.failed) == (COUNT, 3)
    assert undisturbed.confident == sum(row.confident for row in rows) >= COUNT - 5


def test_the_poses_are_right(undisturbed: BatchResults) -> None:
    rows = [row for row in undisturbed if row.confident]
    assert GUESSED in [row.index for row in rows]
    for row in rows:
        torch.testing.assert_close(row.T_target_source, T_true(row.index), atol=0.05, rtol=0)
        assert torch.linalg.eigvalsh(row.information)[0] > 0


def test_killed_workers_and_a_killed_run_change_nothing(pairs: Path, undisturbed: BatchResults, tmp_path: Path) -> None:
    """SIGKILL of a worker, then of the parent, whose children end too; the next start completes the file."""
    out = tmp_path / "many.csv"
    arguments = ["batch", str(pairs), "-o", str(out), "--method", "initial", "--processes", "2"]
    command = [sys.executable, "-c", f"from p2plane.cli import main; raise SystemExit(main({arguments}))"]
    process = subprocess.Popen(command, start_new_session=True)
    wait_until(lambda: rows_in(out) >= 2)
    os.kill(children_of(process.pid)[-1], signal.SIGKILL)
    before = rows_in(out)
    wait_until(lambda: rows_in(out) >= before + 3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not group_is_alive(process.pid))
    assert 0 < rows_in(out) < COUNT
    register_many(pairs, out, processes=1, **SETTINGS)
    assert out.read_bytes() == undisturbed.path.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["many.csv", "many.json"]


def test_killed_before_the_first_row_it_begins_again(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the two places between the record, the file, and the first worker."""
    out = tmp_path / "many.csv"
    for place in ("environment", "_engine"):
        with monkeypatch.context() as patch:
            patch.setattr(f"p2plane.batch.run.{place}", _interrupted)
            with pytest.raises(KeyboardInterrupt):
                register_many(pairs, out, processes=1, **SETTINGS)
        assert out.exists()


def _interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_parquet_goes_on_too_and_holds_the_same(pairs: Path, undisturbed: BatchResults, tmp_path: Path) -> None:
    journal = undisturbed.path.read_bytes()
    (tmp_path / "many.partial.csv").write_bytes(journal[: len(journal) * 9 // 10])
    (tmp_path / "many.json").write_bytes(undisturbed.path.with_suffix(".json").read_bytes())
    out = tmp_path / "many.parquet"
    results = register_many(pairs, out, processes=1, **SETTINGS)
    assert list(read_rows(out)) == list(read_rows(undisturbed.path))
    assert (results.confident, results.failed) == (undisturbed.confident, undisturbed.failed)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["many.json", "many.parquet"]


def test_what_failed_can_be_done_again(pairs: Path, undisturbed: BatchResults, tmp_path: Path) -> None:
    """And nothing else is: the rest of the file is as it was."""
    for path in (undisturbed.path, undisturbed.path.with_suffix(".json")):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    healed = pairs.parent / "nowhere, at all.npy"
    healed.write_bytes((pairs.parent / "source 1.npy").read_bytes())
    results = register_many(pairs, tmp_path / "many.csv", processes=1, retry_failed=True, **SETTINGS)
    healed.unlink()
    assert results.failed == 2
    lines, before = ((path.read_text().splitlines()) for path in (results.path, undisturbed.path))
    assert [line for i, line in enumerate(lines) if i != MISSING + 1] == [
        line for i, line in enumerate(before) if i != MISSING + 1
    ]


def test_a_finished_file_is_not_run_again(
    pairs: Path, undisturbed: BatchResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("p2plane.batch.run._engine", lambda *_: pytest.fail("workers were started"))
    before = undisturbed.path.read_bytes()
    assert register_many(pairs, undisturbed.path, **SETTINGS) == undisturbed
    assert undisturbed.path.read_bytes() == before


@pytest.mark.parametrize(("change", "name"), [({"seed": 1}, "seed"), ({"max_points": 9}, "max_points")])
def test_other_settings_are_refused(pairs: Path, undisturbed: BatchResults, change: dict, name: str) -> None:
    before = undisturbed.path.read_bytes()
    with pytest.raises(ValueError, match=f"begun with {name}"):
        register_many(pairs, undisturbed.path, **(SETTINGS | change))
    assert undisturbed.path.read_bytes() == before


def test_another_list_is_refused(pairs: Path, undisturbed: BatchResults) -> None:
    other = [("a.npy", "b.npy")] * COUNT
    with pytest.raises(ValueError, match="pairs_sha256"):
        register_many(other, undisturbed.path, **SETTINGS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"out": "many.txt"}, "out must end with"),
        ({"processes": 0}, "processes must be at least 1"),
        ({"engine": "magic"}, "engine must be one of"),
        ({"address": "auto"}, "address must go with engine 'ray'"),
        ({"method": "magic"}, "magic"),
        ({"hold": ("up",)}, "hold"),
        ({"max_points": 0}, "max_points"),
        ({"time_limit": 0.0}, "time_limit"),
    ],
)
def test_bad_settings_are_named(pairs: Path, tmp_path: Path, change: dict, message: str) -> None:
    out = tmp_path / change.pop("out", "many.csv")
    with pytest.raises(ValueError, match=message):
        register_many(pairs, out, **(SETTINGS | change))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("broken", "where"),
    [
        (lambda lines: [lines[0][5:], *lines[1:]], "in line 1"),
        (lambda lines: [*lines[:2], lines[2][:80]], "in line 3"),
        (lambda lines: [lines[0], lines[1].replace(b"0.", b"O.")], "in line 2"),
        (lambda lines: [*lines[:3], b"\xff\xff\n"], "'utf-8' codec"),
    ],
)
def test_a_broken_file_is_refused_by_name(
    undisturbed: BatchResults, tmp_path: Path, broken: Callable[[list[bytes]], list[bytes]], where: str
) -> None:
    out = tmp_path / "many.csv"
    out.write_bytes(b"".join(broken(undisturbed.path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(ValueError, match=rf"many\.csv must hold the results of a batch, but {where}"):
        list(read_rows(out))


def test_a_broken_parquet_file_is_refused_by_name(pairs: Path, undisturbed: BatchResults, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    out = tmp_path / "many.parquet"
    write_parquet(out, undisturbed.path)
    out.write_bytes(out.read_bytes()[100:])
    with pytest.raises(ValueError, match=r"many\.parquet must be a Parquet file"):
        list(read_rows(out))


def test_the_command_line_takes_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "scans").mkdir()
    for name in ("scan2.npy", "scan10.npy"):
        save_cloud(tmp_path / "scans" / name, torch.rand(9, 3))
    (tmp_path / "scans" / "scan1.npy").write_bytes(b"")
    out = tmp_path / "many.csv"
    code = main(["batch", str(tmp_path / "scans"), "-o", str(out), "--processes", "1", "--method", "initial"])
    rows = list(read_rows(out))
    assert [(row["source"], row["target"]) for row in rows] == [("scan2.npy", "scan1.npy"), ("scan10.npy", "scan2.npy")]
    assert code == 3
    assert "2 pairs: 0 confident, 1 not confident, 1 failed" in capsys.readouterr().out


def wait_until(condition: object, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def rows_in(path: Path) -> int:
    return path.read_bytes().count(b"\n") - 1 if path.exists() else 0


def children_of(pid: int) -> list[int]:
    """Workers, without the process that multiprocessing keeps for itself."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split() if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def group_is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
