"""Work for workers: to be imported by their processes, so apart from the tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Errand:
    """Square numbers; but 13 kills its worker every time, and 7 the first time, which a file in a folder remembers."""

    folder: Path

    def __call__(self) -> Callable[[int], tuple[int, int]]:
        return self.squared

    def squared(self, number: int) -> tuple[int, int]:
        seen = self.folder / "seen"
        if number == 13 or (number == 7 and not seen.exists()):
            seen.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if number < 0:
            raise ValueError(f"number must not be negative, got {number}")
        return number, number**2


def refuses_to_open() -> Callable[[int], int]:
    """Work that cannot be begun."""
    raise ValueError("there is no such work")
