"""The journal: cut anywhere, it goes on with what is complete."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from p2plane.work.files import alone
from p2plane.work.journal import Journal, write_journal

COLUMNS = ("index", "value", "text")


def row(index: int) -> dict[str, Any]:
    return {"index": index, "value": 0.1 * index, "text": ['a "word"', "one, two", "", "two\nlines"][index % 4]}


def complete(path: Path, order: list[int] | None = None, **settings: Any) -> list[int]:
    """Add what is missing; the indices that were."""
    journal = Journal(path, COLUMNS, 10, **settings)
    missing = [index for group in journal.missing() for index in group]
    for group in journal.missing() if order is None else [[index] for index in order]:
        journal.append([row(index) for index in group])
    journal.close()
    return missing


@pytest.mark.parametrize("group", [1, 3])
def test_cut_at_any_byte_it_is_completed(tmp_path: Path, group: int) -> None:
    path = tmp_path / "rows.csv"
    complete(path, group=group)
    whole = path.read_bytes()
    assert whole.count(b"\n") == 11
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert complete(path, group=group)
        assert path.read_bytes() == whole


def test_rows_are_sorted_in_the_end(tmp_path: Path) -> None:
    complete(tmp_path / "one.csv")
    complete(tmp_path / "other.csv", order=[3, 1, 0, 2, 9, 8, 7, 4, 6, 5])
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "other.csv").read_bytes()


def test_a_group_counts_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    complete(path, order=[0, 1, 3, 4, 5])
    assert complete(path, group=3) == [0, 1, 2, 6, 7, 8, 9]


def test_lines_that_make_no_sense_are_done_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    complete(path)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    lines[3], lines[5], lines[6] = b"\0\0\0\n", b"99,0,a\n", b"\xff\xfe,1\n"
    path.write_bytes(b"".join(lines))
    assert complete(path) == [2, 4, 5]
    assert path.read_bytes() == whole


def test_what_is_not_to_be_kept_is_done_again(tmp_path: Path) -> None:
    complete(tmp_path / "rows.csv")
    assert complete(tmp_path / "rows.csv", keep=lambda line: line["text"] != "") == [2, 6]


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"something else"])
def test_another_file_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="must have the columns"):
        Journal(path, COLUMNS, 10)
    assert path.read_bytes() == content


def test_only_one_may_write(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    with alone(path), pytest.raises(RuntimeError, match="another process"), alone(path):
        pass
    assert not list(tmp_path.iterdir())


def test_a_full_disk_names_the_file_and_what_is_there_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "rows.csv"
    with Journal(path, COLUMNS, 10) as journal:
        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(OSError, match=r"rows\.csv"):
            journal.append([row(3)])
    monkeypatch.undo()
    assert 3 not in complete(path)


def test_rows_of_another_file_become_a_journal_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    for wrong in (10, -1, None):
        with pytest.raises(ValueError, match=r"rows\.csv must have indices from 0 to 9"):
            write_journal(path, COLUMNS, 10, [row(0), row(1) | {"index": wrong}])
        assert not list(tmp_path.iterdir())
    write_journal(path, COLUMNS, 10, [row(3), row(1)])
    assert complete(path) == [0, 2, 4, 5, 6, 7, 8, 9]
