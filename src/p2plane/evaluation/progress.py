"""How far an evaluation is, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np


class Progress:
    """A bar with pairs done, pairs a second, time left and the median angle so far; silent without a terminal."""

    def __init__(self, title: str, total: int, done: int, show: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        console = Console(stderr=True)
        columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
        columns += [TextColumn("{task.fields[speed]}"), TimeRemainingColumn()]
        columns += [TextColumn("{task.fields[angle]}")]
        self._bar = Bar(*columns, console=console, disable=not (show and console.is_terminal))
        self._task = self._bar.add_task(title, total=total, completed=done, speed="", angle="")
        self._angles: list[float] = []

    def advance(self, angles_deg: Sequence[float]) -> None:
        """So many more pairs are done, with these errors."""
        self._angles += angles_deg
        speed = self._bar.tasks[0].speed
        self._bar.update(
            self._task,
            advance=len(angles_deg),
            speed=f"{speed:.3g} pairs/s" if speed else "",
            angle=f"median {np.median(self._angles):.3g} deg",
        )

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
