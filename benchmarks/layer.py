"""Measure the layer: ``python benchmarks/layer.py [--out benchmarks/results] [--threads 1] [--quick]``.

Writes CSV files, charts and a table of ratios with the goals beside them, and prints the table.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import iterations
from measure import Spread, settle_allocator
from p2plane import __version__
from ratios import Ratio, markdown, ratios

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    rounds: int = 200  # of each race of the table
    chart_rounds: int = 30  # of the race of chart (a)
    iterations: tuple[int, ...] = tuple(range(1, 21))
    pairs: int = 16  # of which errors are medians


QUICK = Effort(rounds=3, chart_rounds=2, iterations=(1, 10, 20), pairs=2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with the given arguments, or those of the shell; the exit code."""
    parser = argparse.ArgumentParser(description="Time, memory and gradients of the point-to-plane layer.")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder for results (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="few rounds: whether it runs, not how fast")
    parser.add_argument("--seed", type=int, default=0, help="of the clouds (default %(default)s)")
    parser.add_argument(
        "--threads", type=int, default=1, help="of torch, for every contestant alike (default %(default)s)"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    effort = QUICK if options.quick else Effort()
    options.out.mkdir(parents=True, exist_ok=True)
    run(options.out, effort, options.seed)
    return 0


def run(folder: Path, effort: Effort, seed: int) -> None:
    """Measure everything and write it down."""
    from charts import draw  # needs matplotlib, which had better be missed before the work than after it

    settings = describe(effort, seed)
    (folder / "settings.json").write_text(json.dumps(settings, indent=2) + "\n")
    settle_allocator()
    lines = list(ratios(effort.rounds, effort.pairs, seed))
    table = markdown(lines, settings)
    print(table)
    write_csv(folder / "ratios.csv", [ratio_row(line) for line in lines])
    (folder / "ratios.md").write_text(table)
    write_csv(folder / "time.csv", iterations.times(effort.iterations, effort.chart_rounds, seed))
    write_csv(folder / "errors.csv", iterations.errors(effort.iterations, (0.01, 0.05), effort.pairs, seed))
    # Last, because the profiler that it needs could slow down what comes after it.
    write_csv(folder / "memory.csv", iterations.memory(effort.iterations, seed))
    draw(folder)
    print(f"charts, tables and settings are in {folder}")


def describe(effort: Effort, seed: int) -> dict[str, Any]:
    """What the numbers depend on."""
    return {
        "p2plane": __version__,
        "commit": commit(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu": cpu_name(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg() if hasattr(os, "getloadavg") else None,  # of others, before the start
        "seed": seed,
        **asdict(effort),
    }


def cpu_name() -> str:
    """As the kernel tells it, where it does."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown CPU")


def commit() -> str | None:
    """The commit that was measured, marked where files differ from it; None outside a repository."""
    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def ratio_row(line: Ratio) -> dict[str, Any]:
    """One line of the table with all its digits."""
    low, _, high = line.value if isinstance(line.value, Spread) else ("", line.value, "")
    goal = " ".join(map(str, line.goal)) if line.goal else ""
    return {
        "quantity": line.name,
        "median": line.center,
        "lower_quartile": low,
        "upper_quartile": high,
        "unit": line.unit,
        "goal": goal,
        "met": "" if line.met is None else line.met,
    }


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """One line for each row, the columns of the first."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    raise SystemExit(main())
