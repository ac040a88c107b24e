"""How far long work is, on a terminal."""

from __future__ import annotations

from types import TracebackType
from typing import Any


class Progress:
    """A bar with what is done, how much a second, the time left and a note; silent without a terminal."""

    def __init__(self, title: str, total: int | None, done: int, show: bool, unit: str = "pairs") -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        console = Console(stderr=True)
        columns: list[Any] = [TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()]
        columns += [TextColumn("{task.fields[speed]}"), TimeRemainingColumn(), TextColumn("{task.fields[note]}")]
        self._bar = Bar(*columns, console=console, disable=not (show and console.is_terminal))
        self._task = self._bar.add_task(title, total=total, completed=done, speed="", note="")
        self._unit = unit

    def advance(self, count: int, note: str = "") -> None:
        """So many more are done."""
        speed = self._bar.tasks[0].speed
        self._bar.update(self._task, advance=count, speed=f"{speed:.3g} {self._unit}/s" if speed else "", note=note)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
