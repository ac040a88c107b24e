"""A line in the terminal that says how a training goes; elsewhere, one line for each validation."""

from __future__ import annotations

import sys
from typing import Any


class Progress:
    """The progress bar.

    Args:
        total: steps; None where minutes decide.
        minutes: the budget; None where steps decide.
    """

    def __init__(self, total: int | None, minutes: float | None) -> None:
        self._total, self._minutes = total, minutes
        self._bar: Any = None
        self._task: Any = None

    def start(self, step: int) -> None:
        """Show the bar, if anybody looks."""
        if not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = (TextColumn("step"), MofNCompleteColumn(), BarColumn(20), TextColumn("{task.description}"))
        self._bar = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True))
        self._task = self._bar.add_task("", total=self._total, completed=step)
        self._bar.start()

    def show(self, step: int, numbers: dict[str, float]) -> None:
        """Where it stands."""
        if self._bar is not None:
            shown = (("loss", "loss {:.4f}"), ("angle_deg", "{:.2f} deg"), ("length", "{:.4f}"))
            texts = [text.format(numbers[name]) for name, text in shown if name in numbers]
            texts.append(f"{numbers['pairs_per_second']:.1f} pairs/s")
            self._bar.update(self._task, completed=step, description="  ".join(texts))

    def say(self, line: str) -> None:
        """A line that stays."""
        if self._bar is not None:
            self._bar.console.print(line, highlight=False, markup=False)
        else:
            print(line, flush=True)

    def stop(self) -> None:
        """The end."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
