"""Runs in processes of their own, killed at moments that a seed decides."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

KILLS = 10
COMMAND = "import sys; from p2plane.cli import main; sys.exit(main(sys.argv[1:]))"

Start = Callable[[], subprocess.Popen]
Progress = Callable[[], int]


def python(script: str, *arguments: str, log: Path) -> subprocess.Popen:
    """A script in a process group of its own; what it says goes to the end of a file."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "no_proxy": "127.0.0.1"}
    with log.open("ab") as said:
        command = [sys.executable, "-c", script, *arguments]
        return subprocess.Popen(command, env=environment, stdout=said, stderr=said, start_new_session=True)


def p2plane(*arguments: str, log: Path) -> subprocess.Popen:
    """The command line."""
    return python(COMMAND, *arguments, log=log)


def killed_runs(start: Start, progress: Progress, whole: int, seed: int) -> int:
    """Start a run ten times and kill its first process each time; how many of the kills it did not forestall.

    Two of the moments are anywhere in the first seconds; the others come up to 50 ms after the work has got so far,
    from its beginning to its end.

    Args:
        start: starts the run.
        progress: how far the work is.
        whole: how far it is when it is done.
        seed: of the moments.
    """
    chance, landed = random.Random(seed), 0
    wanted = [0, *sorted(chance.sample(range(1, whole), KILLS - 3)), 0, whole]
    for least in wanted:
        process = start()
        _wait(process, lambda least=least: progress() >= least)
        time.sleep(chance.uniform(0, 0.05 if least else 3.0))
        landed += process.poll() is None
        process.kill()
        process.wait()
        wait_for_group(process.pid)
    return landed


def killed_workers(process: subprocess.Popen, progress: Progress, whole: int, seed: int) -> int:
    """Kill one worker of a run, whichever, ten times; how many there were to kill."""
    chance, landed = random.Random(seed), 0
    for least in sorted(chance.sample(range(1, whole - 1), KILLS)):
        _wait(process, lambda least=least: progress() >= least)
        time.sleep(chance.uniform(0, 0.02))
        workers = workers_of(process.pid) if process.poll() is None else []
        if workers:
            os.kill(chance.choice(workers), signal.SIGKILL)
            landed += 1
    return landed


def completed(process: subprocess.Popen, log: Path, seconds: float = 300) -> None:
    """Wait for a run to end well."""
    try:
        code = process.wait(seconds)
    except BaseException:
        process.kill()
        process.wait()
        raise
    assert code == 0, f"it ended with {code}: {log.read_text()[-2000:]}"


def workers_of(pid: int) -> list[int]:
    """The worker processes, without the one that multiprocessing keeps for itself."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
    except OSError:  # which end meanwhile
        return []


def rows_in(paths: Sequence[Path]) -> int:
    """Lines of the first file that is there, without the heading."""
    for path in paths:
        try:
            return path.read_bytes().count(b"\n") - 1
        except OSError:  # not there, or not any more
            continue
    return 0


def wait_for_group(group: int, seconds: float = 60) -> None:
    """Until nobody is left of a process group: children notice that their parent is dead, and end."""
    end = time.monotonic() + seconds
    while True:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        assert time.monotonic() < end, "children outlive the run"
        time.sleep(0.01)


def _wait(process: subprocess.Popen, condition: Callable[[], bool]) -> None:
    try:
        while process.poll() is None and not condition():
            time.sleep(0.002)
    except BaseException:  # the case's time is over, and the run must not outlive it
        process.kill()
        process.wait()
        raise
