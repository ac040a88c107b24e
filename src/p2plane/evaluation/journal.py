"""The file that rows stream into: whatever moment a run ends at, what is there counts, and nothing counts twice.

Rows are written batch by batch, and a batch counts only if all its rows are there. So a run that goes on makes the same
batches as one that was left alone, and the same numbers, to the last bit.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from p2plane.evaluation.rows import COLUMNS

Line = dict[str, str]


class Journal:
    """Rows in a CSV file, in the order in which their batches were done.

    Args:
        path: of the file; it need not be there.
        batches: the indices of the pairs of each batch. What belongs to none of them, or to one that is not complete,
            is forgotten.
    """

    def __init__(self, path: Path, batches: Sequence[Sequence[int]]) -> None:
        self.path = path
        written = _complete_lines(path)
        self.lines = {int(line["index"]): line for line in written}
        self.missing = [batch for batch in batches if any(index not in self.lines for index in batch)]
        wanted = {index for batch in batches for index in batch} - {index for batch in self.missing for index in batch}
        self.lines = {index: line for index, line in self.lines.items() if index in wanted}
        if len(self.lines) != len(written) or not _ends_well(path):
            self.write_all()
        self._file = path.open("a", newline="")

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add the rows of one batch, so that they survive whatever comes."""
        lines = [{name: _text(row[name]) for name in COLUMNS} for row in rows]
        self._file.write("".join(",".join(line.values()) + "\n" for line in lines))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.lines |= {int(line["index"]): line for line in lines}

    def close(self) -> None:
        """Put the rows in the order of their indices, and let go of the file."""
        self._file.close()
        if list(self.lines) != sorted(self.lines):
            self.lines = dict(sorted(self.lines.items()))
            self.write_all()

    def write_all(self) -> None:
        """The whole file anew; the old one stays until the new one is complete."""
        with replacing(self.path) as temporary, temporary.open("w", newline="") as file:
            file.write(",".join(COLUMNS) + "\n")
            file.writelines(",".join(line.values()) + "\n" for line in self.lines.values())


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write beside `path`, which takes its place once it is complete and on the disk."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """No other process writes to `path` meanwhile; a RuntimeError where one does."""
    lock = path.with_name(f".{path.name}.lock")
    with lock.open("w") as file:
        try:
            import fcntl
        except ImportError:  # Windows: nothing warns of a second writer
            yield
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RuntimeError(f"{path} is being written by another process") from error
        yield
        lock.unlink(missing_ok=True)


def _complete_lines(path: Path) -> list[Line]:
    if not path.exists():
        return []
    text = path.read_text()
    lines = text[: text.rfind("\n") + 1].splitlines()  # a last line without its end was cut
    if lines and tuple(lines[0].split(",")) != COLUMNS:
        raise ValueError(f"{path} must have the columns {COLUMNS[:3]} ... {COLUMNS[-2:]}, got {lines[0][:60]!r}")
    return list(csv.DictReader(lines))


def _ends_well(path: Path) -> bool:
    return path.exists() and path.read_bytes().endswith(b"\n")


def _text(value: Any) -> str:
    """Nine digits, which is what a float32 holds."""
    return f"{value:.9g}" if isinstance(value, float) else str(value)
