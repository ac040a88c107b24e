"""How fast a training goes: ``python benchmarks/training.py [--config rpmnet-plane-small] [--steps 60] [CHANGES ...]``.

Each way to share the cores is a short training in processes of its own; pairs per second are the median over the rows
of its log without the first, and without validation. Further arguments change the config: ``model.neighbors=32``.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

WAYS = {
    "two threads, pairs in between": ("threads=2", "workers=0"),
    "two threads, one worker": ("threads=2", "workers=1"),
    "one thread, one worker": ("threads=1", "workers=1"),
    "two processes, pairs in between": ("devices=2", "accelerator=cpu", "threads=1", "workers=0"),
    "two processes, one worker each": ("devices=2", "accelerator=cpu", "threads=1", "workers=1"),
}


def pairs_per_second(config: str, steps: int, changes: Sequence[str]) -> float:
    """The median speed of a training."""
    command = str(Path(sys.executable).with_name("p2plane"))
    rows = max(1, steps // 6)
    own = (f"budget.steps={steps}", f"log_every={rows}", "validation.pairs=1", f"validation.every={10 * steps}")
    with tempfile.TemporaryDirectory() as folder:
        settings = [part for change in (*own, *changes) for part in ("--set", change)]
        subprocess.run([command, "train", config, "--out", folder, *settings], check=True, stdout=subprocess.DEVNULL)
        with open(Path(folder) / "log.csv", newline="") as file:
            speeds = [float(row["pairs_per_second"]) for row in csv.DictReader(file) if row["pairs_per_second"]]
    return statistics.median(speeds[1:])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with the given arguments, or those of the shell; the exit code."""
    parser = argparse.ArgumentParser(description="Speed of a training, for several ways to share the cores.")
    parser.add_argument("--config", default="rpmnet-plane-small")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--way", choices=tuple(WAYS), action="append", help="these ways only")
    parser.add_argument("changes", nargs="*", help="of the config: key=value")
    options = parser.parse_args(arguments)
    print(f"{options.config}, {options.steps} steps")
    first = None
    for name in options.way or WAYS:
        speed = pairs_per_second(options.config, options.steps, (*options.changes, *WAYS[name]))
        first = first or speed
        print(f"{name:34s} {speed:6.2f} pairs/s   {speed / first:5.2f} of the first", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
