"""`register_many` over a list of small pairs: two processes against one, and Ray on this machine, one thread each.

    python benchmarks/batch.py [--pairs 2000] [--engines processes ray] [--method initial]

The pairs are views of built-in shapes, 768 points each, in files. `initial` takes the least time for one, a tenth to a
quarter of a second, so that it is the engine that is measured; others take longer and hide it. The second speedup
leaves out the time until the first row is there, which is the same for ten pairs and a million. All runs must leave the
same file. Memory is the most that all processes of a run held during the first quarter of its rows, and during the
last: it should not grow.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from p2plane import save_cloud
from p2plane.batch import register_many
from p2plane.data.pairs import PairDataset
from p2plane.data.synthetic import SyntheticShapes

SHAPES = 100  # different pairs in files; longer lists repeat them
GOALS = {("processes", 2): 1.8, ("ray", 2): 1.6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--engines", nargs="*", default=["processes", "ray"], choices=["processes", "ray"])
    parser.add_argument("--method", default="initial")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pairs = _write_pairs(folder, options.pairs)
        runs = [("processes", 1), ("processes", 2)] if "processes" in options.engines else [("processes", 1)]
        if "ray" in options.engines and importlib.util.find_spec("ray") is not None:
            runs.append(("ray", 2))
        print(f"{len(pairs)} pairs of 768 points, method {options.method}")
        print(_cells("engine", "workers", "seconds", "pairs/s", "first row", "memory, MB", "speedup", "after start"))
        alone: Run | None = None
        first = b""
        for engine, processes in runs:
            out = folder / f"{engine}{processes}.csv"
            run = _measured(pairs, out, engine, processes, options.method)
            alone, first = alone or run, first or out.read_bytes()
            assert out.read_bytes() == first, f"{engine} with {processes} workers left another file"
            print(_line(engine, processes, run, len(pairs), alone), flush=True)


@dataclass
class Run:
    """One run, watched."""

    moments: list[float] = field(default_factory=list)  # at which there were more rows
    rows: list[int] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)  # bytes then
    start: float = field(default_factory=time.perf_counter)

    @property
    def ready(self) -> float:
        """Seconds until the first row."""
        return self.moments[0] - self.start

    @property
    def seconds(self) -> float:
        """Until the last."""
        return self.moments[-1] - self.start

    @property
    def pace(self) -> float:
        """Rows a second after the first."""
        return (self.rows[-1] - self.rows[0]) / (self.moments[-1] - self.moments[0])


def _write_pairs(folder: Path, count: int) -> list[tuple[str, str]]:
    made = PairDataset(SyntheticShapes("test"), "cpu")
    for index in range(min(count, SHAPES)):
        save_cloud(folder / f"source{index}.npy", made[index].source)
        save_cloud(folder / f"target{index}.npy", made[index].target)
    places = (index % SHAPES for index in range(count))
    return [(str(folder / f"source{place}.npy"), str(folder / f"target{place}.npy")) for place in places]


def _measured(pairs: list[tuple[str, str]], out: Path, engine: str, processes: int, method: str) -> Run:
    run, over = Run(), threading.Event()
    watcher = threading.Thread(target=_watch, args=(run, out, over))
    watcher.start()
    try:
        register_many(pairs, out, engine=engine, processes=processes, method=method, show_progress=False)
    finally:
        over.set()
        watcher.join()
    return run


def _watch(run: Run, out: Path, over: threading.Event) -> None:
    rows, offset = -1, 0  # the first line has no row
    while not over.wait(0.05):
        if out.exists() and out.stat().st_size > offset:
            with out.open("rb") as file:
                file.seek(offset)
                content = file.read()
            offset += len(content)
            rows += content.count(b"\n")
            if rows > 0 and (not run.rows or rows > run.rows[-1]):
                run.moments.append(time.perf_counter())
                run.rows.append(rows)
                if len(run.memory) <= run.moments[-1] - run.moments[0]:  # once a second: it takes time from the workers
                    run.memory.append(_memory(os.getpid()))


def _memory(pid: int) -> int:
    """Bytes that a process and all under it hold, pages that they share counted once for each."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        tasks = Path(f"/proc/{pid}/task").iterdir()
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(map(_memory, children))


def _line(engine: str, processes: int, run: Run, count: int, alone: Run) -> str:
    quarter = max(1, len(run.memory) // 4)
    memory = f"{max(run.memory[:quarter]) / 1e6:.0f} to {max(run.memory[-quarter:]) / 1e6:.0f}"
    goal = GOALS.get((engine, processes))
    cells = f"{run.seconds:.1f}", f"{count / run.seconds:.2f}", f"{run.ready:.1f}", memory
    speedups = f"{alone.seconds / run.seconds:.2f}", f"{run.pace / alone.pace:.2f}"
    return _cells(engine, str(processes), *cells, *speedups) + (f"  (goal {goal})" if goal else "")


def _cells(name: str, *cells: str) -> str:
    return f"{name:12s}" + "".join(f"{cell:>14s}" for cell in cells)


if __name__ == "__main__":
    main()
