"""The file that rows stream into: whatever moment a run ends at, what is there counts, and nothing counts twice.

Rows may belong together in groups, which are done at once; then a group counts only if all its rows are there. So a run
that goes on makes the same groups as one that was left alone, and the same numbers, to the last bit.
"""

from __future__ import annotations

import csv
import io
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from p2plane.work.files import naming, replacing

Line = dict[str, str]

SYNC_SECONDS = 1.0
"""A row is safe from the end of the process at once, and from that of the machine after so long."""


class Journal:
    """Rows in a CSV file, one line each, in the order in which they were done; sorted by index once it is closed.

    Of each row it remembers where it is, eight bytes, and nothing else.

    Args:
        path: of the file; it need not be there.
        columns: their names; the first is "index".
        count: how many rows there will be, with the indices from 0 on.
        group: so many rows belong together, from index 0 on. What is there of a group that is not complete is
            forgotten.
        digits: of numbers; None for as many as they need to be read back the same.
        keep: whether a line that is there counts; None for all.
    """

    def __init__(
        self,
        path: Path,
        columns: Sequence[str],
        count: int,
        *,
        group: int = 1,
        digits: int | None = None,
        keep: Callable[[Line], bool] | None = None,
    ) -> None:
        self.path, self.columns, self.count, self._group, self._digits = path, tuple(columns), count, group, digits
        self._places = np.full(count, -1, dtype=np.int64)  # where the line of each row begins, -1 if there is none
        self._lines = 0  # in the file, those that do not count included
        end = self._read(keep) if path.exists() else 0
        self._forget_incomplete_groups()
        self._file = path.open("r+b" if end else "wb")
        self._file.truncate(end)
        self._file.seek(end)
        if not end:
            self._file.write(_csv_line(self.columns))
        self._synced = 0.0

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *reason: object) -> None:
        """Let go of the file, as it is."""
        with suppress(OSError):  # of a full disk, which has been told already
            self._file.close()

    @property
    def done(self) -> int:
        """How many rows are there."""
        return int((self._places >= 0).sum())

    def missing(self) -> Iterator[range]:
        """The indices of each group that is not there, in ascending order."""
        for first in range(0, self.count, self._group):
            if self._places[first] < 0:
                yield range(first, min(first + self._group, self.count))

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add the rows of one group, so that they survive whatever comes."""
        with naming(self.path):
            for row in rows:
                self._places[row["index"]] = self._file.tell()
                self._file.write(_csv_line([self._text(row[name]) for name in self.columns]))
                self._lines += 1
            self._file.flush()
            if time.monotonic() - self._synced > SYNC_SECONDS:
                os.fsync(self._file.fileno())
                self._synced = time.monotonic()

    def close(self) -> None:
        """Put the rows in the order of their indices, and let go of the file."""
        with naming(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        places = self._places[self._places >= 0]
        if len(places) != self._lines or (np.diff(places) < 0).any():
            self._sort(places)

    def _read(self, keep: Callable[[Line], bool] | None) -> int:
        """Note what is there; where the last complete line ends."""
        with self.path.open("rb") as file:
            header = file.readline()
            if not header.endswith(b"\n"):  # not even that came onto the disk
                if _csv_line(self.columns).startswith(header):
                    return 0
                raise self._foreign(header)
            if header != _csv_line(self.columns):
                raise self._foreign(header)
            place = end = len(header)
            for line in file:
                end += len(line)
                if not line.endswith(b"\n"):  # cut
                    return place
                self._note(line, place, keep)
                place = end
        return end

    def _note(self, line: bytes, place: int, keep: Callable[[Line], bool] | None) -> None:
        self._lines += 1
        values = next(csv.reader([line.decode(errors="replace")]), [])
        if len(values) != len(self.columns) or not values[0].isdecimal() or int(values[0]) >= self.count:
            return
        if keep is None or keep(dict(zip(self.columns, values, strict=True))):
            self._places[int(values[0])] = place

    def _forget_incomplete_groups(self) -> None:
        if self._group == 1:
            return
        for first in range(0, self.count, self._group):
            group = self._places[first : first + self._group]
            if (group < 0).any():
                group[:] = -1

    def _sort(self, places: np.ndarray) -> None:
        """The whole file anew; the old one stays until the new one is complete."""
        with self.path.open("rb") as old, replacing(self.path) as temporary, temporary.open("wb") as new:
            new.write(old.readline())
            for place in places.tolist():
                old.seek(place)
                new.write(old.readline())

    def _text(self, value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, bool):
            return str(int(value))
        if isinstance(value, float):
            return repr(value) if self._digits is None else f"{value:.{self._digits}g}"
        return " ".join(str(value).splitlines())  # a row is one line

    def _foreign(self, header: bytes) -> ValueError:
        names = f"{self.columns[:3]} ... {self.columns[-2:]}"
        return ValueError(f"{self.path} must have the columns {names}, got {header[:60].decode(errors='replace')!r}")


def write_journal(
    path: Path, columns: Sequence[str], count: int, rows: Iterable[Mapping[str, Any]], *, digits: int | None = None
) -> None:
    """The journal of rows that another file holds, whole or not there; arguments as for `Journal`."""
    with replacing(path) as temporary, Journal(temporary, columns, count, digits=digits) as journal:
        for row in rows:
            if row["index"] not in range(count):
                raise ValueError(f"rows for {path} must have indices from 0 to {count - 1}, got {row['index']}")
            journal.append([row])
        journal.close()


def _csv_line(values: Sequence[str]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(values)
    return buffer.getvalue().encode(errors="backslashreplace")
