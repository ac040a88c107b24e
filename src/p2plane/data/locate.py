"""Where data sets lie: the folder that the caller names, that of P2PLANE_DATA, or the cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

VARIABLE = "P2PLANE_DATA"


class DataNotFoundError(FileNotFoundError):
    """A data set is in none of the places where it was looked for."""


def cache_folder() -> Path:
    """Where downloads go: ``p2plane`` in XDG_CACHE_HOME or ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "p2plane"


def data_folders(root: str | os.PathLike | None = None) -> Iterator[Path]:
    """The folders to look in, one after the other; the caller's alone, if there is one."""
    if root is not None:
        yield Path(root)
        return
    if os.environ.get(VARIABLE):
        yield Path(os.environ[VARIABLE])
    yield cache_folder()


def find_data(root: str | os.PathLike | None, *names: str, remedy: str) -> Path:
    """The first folder that is there under one of the names.

    Args:
        root: the caller's folder, of the data set itself or of several; None to look in the usual places.
        names: what the data set's folder may be called.
        remedy: what to do when it is not there.
    """
    folders = list(data_folders(root))
    for folder in folders:
        for path in (*(folder / name for name in names), *([folder] if folder.name in names else [])):
            if path.is_dir():
                return path
    if root is not None and Path(root).is_dir():
        return Path(root)  # a folder of another name; its reader says what is missing in it
    looked = ", ".join(str(folder) for folder in folders)
    raise DataNotFoundError(f"{' or '.join(names)} must be in {looked} (root, or the variable {VARIABLE}): {remedy}")
