"""Engines give back every item, whatever becomes of the workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from p2plane.work.engine import results_of
from p2plane.work.processes import Processes
from tests.work.errands import Errand, refuses_to_open


def check_all_done(engine: Any) -> None:
    """Items are taken from a list only as they are needed, and all come back."""
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(1, 21):
            taken.append(number)
            yield number

    results, most_ahead = {}, 0
    with engine:
        capacity = engine.capacity
        for number, square in results_of(engine, items(), lambda number: (number, -1)):
            results[number] = square
            most_ahead = max(most_ahead, len(taken) - len(results))
    assert results == {number: -1 if number == 13 else number**2 for number in range(1, 21)}
    assert most_ahead <= capacity + 2  # those that are to be tried again


def test_workers_that_are_killed_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2plane.work.engine.TRIES", 2)
    check_all_done(Processes(Errand(tmp_path), 2))


def test_an_error_of_the_work_comes_to_the_caller(tmp_path: Path) -> None:
    with Processes(Errand(tmp_path), 1) as engine, pytest.raises(ValueError, match="negative, got -3"):
        list(results_of(engine, [2, -3], lambda number: None))


def test_work_that_cannot_be_begun_says_why() -> None:
    with Processes(refuses_to_open, 1) as engine, pytest.raises(ValueError, match="no such work"):
        list(results_of(engine, [2], lambda number: None))


def test_ray_does_the_same(tmp_path: Path) -> None:
    """In a process of its own: Ray leaves threads and warnings behind."""
    pytest.importorskip("ray", reason="needs Ray: pip install 'p2plane[distributed]'")
    import subprocess
    import sys

    code = (
        "from pathlib import Path; from p2plane.work.ray import Ray; from tests.work.errands import Errand\n"
        "from tests.work.test_engines import check_all_done\n"
        f"engine = Ray(Errand(Path({str(tmp_path)!r})), processes=2)\n"
        "check_all_done(engine)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
