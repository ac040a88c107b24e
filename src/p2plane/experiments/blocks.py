"""What a page is made of: tables, figures and notes, before they are HTML or Markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    below: str = ""
    """A second line, such as the paper's number."""
    best: bool = False
    """The best of its column."""
    below_best: bool = False
    """The best of its column among the second lines."""
    bold: bool = False
    """An extension that beats its base."""
    below_bold: bool = False
    source: Path | None = None
    """The results file that it came from."""


@dataclass(frozen=True)
class Table:
    """Cells in rows under a header."""

    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""


@dataclass(frozen=True)
class Figure:
    """A picture that is drawn from results files."""

    name: str
    """Of its file, without the ending."""
    caption: str
    draw: Callable[[], Any]
    """Gives a matplotlib figure."""
    sources: tuple[Path, ...] = field(default=())
    """The results files that it shows."""


@dataclass(frozen=True)
class Note:
    """A sentence."""

    text: str


Block = Table | Figure | Note
