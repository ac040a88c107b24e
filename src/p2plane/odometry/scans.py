"""The scans of a series, opened one after the other; one that cannot be used says why."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sized
from pathlib import Path
from typing import Any, NamedTuple

from p2plane.batch.pairs import clouds_in
from p2plane.data.io import READERS
from p2plane.registration.scan import Scan, prepare


class Opened(NamedTuple):
    """A scan, or why there is none."""

    name: str
    scan: Scan | None
    problem: str = ""


def list_scans(given: Any) -> tuple[Iterable[Any], int | None]:
    """The scans that a user means, none of them read yet, and how many there are, if that is known.

    Args:
        given: a folder, whose clouds are taken in the order of their names; or anything that can be iterated and holds
            what `register` takes: files, arrays, clouds.
    """
    if isinstance(given, str | os.PathLike):
        files = clouds_in(Path(given))
        if len(files) < 2:
            raise ValueError(f"{given} must hold at least two clouds ({', '.join(READERS)}), got {len(files)}")
        return files, len(files)
    if not isinstance(given, Iterable):
        raise ValueError(f"scans must be a folder or many scans, got {type(given).__name__}")
    return given, len(given) if isinstance(given, Sized) else None


def open_scans(scans: Iterable[Any], max_points: int) -> Iterator[Opened]:
    """Each scan, thinned and with normals."""
    for index, given in enumerate(scans):
        is_file = isinstance(given, str | os.PathLike)
        name = Path(given).name if is_file else str(index)
        try:
            yield Opened(name, prepare("the scan", given, max_points))
        except (ValueError, OSError) as error:
            if not is_file and not _is_empty(given):
                raise
            yield Opened(name, None, " ".join(str(error).split()))


def _is_empty(given: Any) -> bool:
    """Whether what came is a cloud, but one without points; anything else is a mistake of the caller."""
    points = getattr(given, "points", given)
    return getattr(points, "ndim", 2) == 2 and hasattr(points, "__len__")
