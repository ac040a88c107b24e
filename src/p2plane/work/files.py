"""Files that are whole or not there, and that only one process writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of the disk name the file, which those of a full one do not by themselves."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write beside `path`, which takes its place once it is complete and on the disk."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        with naming(path):
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
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
