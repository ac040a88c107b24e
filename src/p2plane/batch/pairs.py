"""Lists of pairs of files: a CSV file, a folder, or a sequence. None of them is read into memory as a whole."""

from __future__ import annotations

import csv
import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from p2plane.data.io import READERS

NAMES = ("source", "target", "initial")


@dataclass(frozen=True)
class PairFiles:
    """One pair of a list."""

    index: int
    source: str
    """As the list has it."""
    target: str
    initial: str
    """The file of a first guess of the pose, empty if there is none."""
    folder: str
    """What names that are not absolute belong to."""

    def path(self, name: str) -> Path:
        """Where the file of that name is."""
        return Path(self.folder, name)


@dataclass(frozen=True)
class PairList:
    """Pairs that can be gone through more than once."""

    count: int
    digest: str
    """Of the names of all pairs, in their order."""
    pairs: Callable[[], Iterator[PairFiles]]


def open_pairs(given: Any) -> PairList:
    """The list that a user means.

    Args:
        given: a CSV file, see `_csv_pairs`; a folder, whose `clouds_in` are registered each onto the one before; or a
            sequence of (source, target) or (source, target, initial), the names of files.
    """
    if isinstance(given, str | os.PathLike):
        path = Path(given)
        if path.is_dir():
            return _counted(lambda: _folder_pairs(path), f"{path} must hold at least two clouds ({', '.join(READERS)})")
        if not path.is_file():
            raise FileNotFoundError(f"there is no list of pairs {path}")
        return _counted(lambda: _csv_pairs(path), f"{path} must hold at least one pair")
    if not isinstance(given, Sequence):
        raise ValueError(f"pairs must be a CSV file, a folder or a sequence of pairs, got {type(given).__name__}")
    return _counted(lambda: _sequence_pairs(given), "pairs must hold at least one pair")


def clouds_in(folder: Path) -> list[Path]:
    """The clouds of a folder in the order of their names, scan2 before scan10.

    Scans of one series have one ending. Where a folder has several, the commonest is taken: what lies beside scans,
    such as poses and times, could be read as a cloud too.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    files = [path for path in folder.iterdir() if path.suffix.lower() in READERS and path.is_file()]
    endings = Counter(path.suffix.lower() for path in files)
    ending = max(sorted(endings), key=lambda each: endings[each], default="")
    chosen = [path for path in files if path.suffix.lower() == ending]
    return sorted(chosen, key=lambda path: (_natural(path.name), path.name))


def _natural(name: str) -> list[tuple[bool, int, str]]:
    parts = re.split(r"([0-9]+)", name)
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts if part]


def _counted(pairs: Callable[[], Iterator[PairFiles]], refusal: str) -> PairList:
    """The list, after one look at each of its pairs."""
    count, digest = 0, hashlib.sha256()
    for pair in pairs():
        digest.update("\0".join((pair.source, pair.target, pair.initial)).encode(errors="surrogatepass") + b"\n")
        count += 1
    if not count:
        raise ValueError(f"{refusal}, got none")
    return PairList(count, digest.hexdigest(), pairs)


def _folder_pairs(folder: Path) -> Iterator[PairFiles]:
    names = [path.name for path in clouds_in(folder)]
    for index, (target, source) in enumerate(pairwise(names)):
        yield PairFiles(index, source, target, "", str(folder.resolve()))


def _csv_pairs(path: Path) -> Iterator[PairFiles]:
    """Pairs of a CSV file in UTF-8: source, target and perhaps initial, names relative to the file's folder.

    A first line that names ``source`` and ``target`` says which columns these are; others are passed over.
    """
    folder, index = str(path.resolve().parent), 0
    columns: dict[str, int] | None = None
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        try:
            for cells in reader:
                cells = [cell.strip() for cell in cells]
                if not any(cells):
                    continue
                if columns is None:
                    columns = {name: cells.index(name) for name in NAMES if name in cells}
                    if "source" in columns and "target" in columns:
                        continue
                    columns = {name: place for place, name in enumerate(NAMES[: len(cells)])}
                    if len(cells) > len(NAMES):
                        raise _bad_line(path, reader.line_num, f"{len(cells)} cells and no names of columns above")
                found = {name: cells[place] for name, place in columns.items() if place < len(cells)}
                yield _pair(index, found, folder, lambda got: _bad_line(path, reader.line_num, got))
                index += 1
        except (UnicodeDecodeError, csv.Error) as error:
            raise ValueError(f"{path} must be a CSV file in UTF-8, but {error}") from error


def _sequence_pairs(given: Sequence[Any]) -> Iterator[PairFiles]:
    here = str(Path.cwd())
    for index, names in enumerate(given):
        is_pair = isinstance(names, Sequence) and not isinstance(names, str) and len(names) in (2, 3)
        if not is_pair or not all(isinstance(name, str | os.PathLike) for name in names if name is not None):
            raise _bad_pair(index, f"{names!r:.200}")
        found = {name: "" if file is None else os.fspath(file) for name, file in zip(NAMES, names, strict=False)}
        yield _pair(index, found, here, partial(_bad_pair, index))


def _pair(index: int, found: dict[str, str], folder: str, error: Callable[[str], ValueError]) -> PairFiles:
    for name in ("source", "target"):
        if not found.get(name):
            raise error(f"no {name}")
    if any("\n" in name or "\r" in name or "\0" in name for name in found.values()):
        raise error("a name with a line break")
    return PairFiles(index, found["source"], found["target"], found.get("initial", ""), folder)


def _bad_pair(index: int, got: str) -> ValueError:
    return ValueError(f"pairs[{index}] must be names of files, (source, target) or with an initial pose, got {got}")


def _bad_line(path: Path, line: int, got: str) -> ValueError:
    return ValueError(f"{path}, line {line}, must be source,target or source,target,initial, got {got}")
