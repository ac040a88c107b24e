"""A time limit for every case, and a row of the table for whatever became of it."""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from torture.table import Table

torch.set_num_threads(1)

SECONDS = 120  # of a case that names no limit of its own
PATIENCE = float(os.environ.get("P2PLANE_PATIENCE", "1"))  # times every limit, on a machine that is busy
TABLE = pytest.StashKey[Table]()
FAILURE = pytest.StashKey[str]()

Note = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--table", type=Path, help="write the page of what was tried and what happened here")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "limit(seconds): after which a case counts as a hang")
    config.stash[TABLE] = Table()


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Note:
    """A function that notes what was tried and what happened."""
    table, section = request.config.stash[TABLE], _section(request.node)
    return lambda tried, happened: table.add(section, tried, happened)


@pytest.fixture(autouse=True)
def _limit(request: pytest.FixtureRequest) -> Iterator[None]:
    """SIGALRM is left to those who want a limit inside a case."""
    marker = request.node.get_closest_marker("limit")
    seconds = PATIENCE * (marker.args[0] if marker else SECONDS)

    def hang(number: int, frame: object) -> None:
        raise AssertionError(f"it took more than {seconds:.0f} seconds")

    before = signal.signal(signal.SIGUSR1, hang)
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        signal.signal(signal.SIGUSR1, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    name = item.name.removeprefix("test_").replace("_", " ")
    if report.failed:
        reason = str(call.excinfo.value).strip().splitlines() if call.excinfo else []
        item.config.stash[TABLE].add(_section(item), name, f"**FAILED**: {reason[0] if reason else 'no reason'}")
    elif report.skipped and call.excinfo:
        item.config.stash[TABLE].add(_section(item), name, f"not tried: {call.excinfo.value}")
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    page = config.stash[TABLE].page()
    path = config.getoption("--table")
    if path is None:
        terminalreporter.write_line(page)
    else:
        path.write_text(page)
        terminalreporter.write_line(f"the table is in {path}")


def _section(item: Any) -> str:
    return (item.module.__doc__ or item.module.__name__).splitlines()[0].rstrip(".")
