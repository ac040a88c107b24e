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
    """Start a run eleven times and kill its first process each time; how many kills landed, which is ten at least.

    Two of the moments are anywhere in the first seconds; the others come up to 50 ms after the work has got so far,
    from its beginning to its end. The last comes when the work is done, where the run may be over before it.

    Args:
        start: starts the run.
        progress: how far the work is.
        whole: how far it is when it is done.
        seed: of the moments.
    """
    chance, landed = random.Random(seed), 0
    amid = _moments(chance, KILLS - 2, whole)
    for least in [0, *amid[:4], 0, *amid[4:], whole]:
        process = start()
        _wait(process, lambda least=least: progress() >= least)
        time.sleep(chance.uniform(0, 0.05 if least else 3.0))
        landed += process.poll() is None
        process.kill()
        process.wait()
        wait_for_group(process.pid)
    assert landed >= KILLS, f"the run was over before {KILLS + 1 - landed} of the kills"
    return landed


def killed_workers(process: subprocess.Popen, progress: Progress, whole: int, seed: int) -> None:
    """Kill one worker of a run, whichever, ten times."""
    chance = random.Random(seed)
    for least in _moments(chance, KILLS, whole):
        _wait(process, lambda least=least: progress() >= least)
        time.sleep(chance.uniform(0, 0.02))
        workers = workers_of(process.pid)
        assert workers, f"the run was over, or had no workers, after {progress()} of {whole}"
        os.kill(chance.choice(workers), signal.SIGKILL)


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


def _moments(chance: random.Random, count: int, whole: int) -> list[int]:
    """So many places in the work, far enough from its end for the kill to come before it."""
    return sorted(chance.sample(range(1, whole * 4 // 5), count))


def _wait(process: subprocess.Popen, condition: Callable[[], bool]) -> None:
    try:
        while process.poll() is None and not condition():
            time.sleep(0.002)
    except BaseException:  # the case's time is over, and the run must not outlive it
        process.kill()
        process.wait()
        raise
