"""What a file may claim: every count is held against the bytes that are there before anything is allocated."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, AnyStr, BinaryIO

LONGEST_HEADER = 1 << 16  # bytes
LONGEST_LINE = 1 << 20  # characters
MOST_COLUMNS = 1024  # numbers to one point
EXPANSION = 20  # how far compressed points may grow; those of scanners stay below 10 ...
ALWAYS_ALLOWED = 1 << 26  # ... and 64 MB are granted to the smallest file


def count(name: str, text: str | bytes) -> int:
    """A number of things, from its digits in a header."""
    shown = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    try:
        number = int(shown)
    except ValueError:
        number = -1
    if number < 0:
        raise ValueError(f"expected a count for {name}, got {shown[:40]!r}")
    return number


def fits(name: str, claimed: int, available: int) -> None:
    """Refuse a claim of more bytes than are left in the file."""
    if claimed > available:
        raise ValueError(f"expected {claimed} bytes for {name}, got {available}")


def expands(name: str, unpacked: int, packed: int) -> None:
    """Refuse compressed data that claims to become out of all proportion."""
    allowed = ALWAYS_ALLOWED + EXPANSION * packed
    if unpacked > allowed:
        raise ValueError(f"expected at most {allowed} bytes of {name} from {packed} compressed ones, got {unpacked}")


def columns(number: int) -> None:
    """Refuse an absurd number of columns."""
    if number > MOST_COLUMNS:
        raise ValueError(f"expected at most {MOST_COLUMNS} numbers to a point, got {number}")


def lines(file: IO[AnyStr]) -> Iterator[AnyStr]:
    """The lines that are left in a file, none of them absurdly long: without line breaks, a file would be one."""
    for line in iter(partial(file.readline, LONGEST_LINE), file.read(0)):
        if len(line) == LONGEST_LINE:
            raise ValueError(f"expected lines of fewer than {LONGEST_LINE} characters, got a longer one")
        yield line


def header_lines(file: BinaryIO, last: str) -> Iterator[list[str]]:
    """The words of each line of a header, up to the line that begins with the word ``last``."""
    left = LONGEST_HEADER
    while left > 0:
        line = file.readline(left)
        left -= len(line)
        if not line.endswith(b"\n"):
            break
        words = line.decode("utf-8", "replace").split()
        if words:
            yield words
        if words[:1] == [last]:
            return
    raise ValueError(f"expected a header that ends with {last!r}, got none in the first {LONGEST_HEADER - left} bytes")


@contextmanager
def contained(library: str) -> Iterator[None]:
    """Whatever a library raises over a bad file becomes a ValueError; what it warns or logs stays inside."""
    logging.getLogger(library).addHandler(_SILENT)  # else the logging of last resort prints
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (ValueError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a panic in Rust is not an Exception
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{library} could not read it: {reason or type(error).__name__}") from error


_SILENT = logging.NullHandler()
