"""The three charts of analytic against automatic differentiation: time, memory, and errors of the gradient.

The measuring is that of ``benchmarks/layer.py``, which a checkout has; the charts need its files alone.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from p2plane.experiments.blocks import Block, Cell, Figure, Note, Table
from p2plane.experiments.experiment import Experiment
from p2plane.experiments.folder import ResultsFolder
from p2plane.experiments.paper import paper
from p2plane.experiments.style import GRADIENT_LABELS, GRADIENTS, frame, legend_below, new_figure

Row = dict[str, str]
FILES = ("time.csv", "memory.csv", "errors.csv")
BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "layer.py"
TEN = 10  # iterations that the paper compares at


def _folder(folder: ResultsFolder) -> Path:
    return folder.path / "differentiation"


def _measure(folder: ResultsFolder) -> None:
    target = _folder(folder)
    if all((target / name).is_file() for name in FILES):
        return
    if not BENCHMARK.is_file():
        raise FileNotFoundError("the charts are measured by benchmarks/layer.py, which only a checkout has")
    command = [sys.executable, str(BENCHMARK), "--out", str(target), *(["--quick"] if folder.scale.quick else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"benchmarks/layer.py failed: {done.stderr.strip().splitlines()[-1]}")


def _render(folder: ResultsFolder) -> list[Block]:
    target = _folder(folder)
    if not all((target / name).is_file() for name in FILES):
        return [Note("Not measured.")]
    time, memory, errors = (_read(target / name) for name in FILES)
    caption = (
        "(a) Time and (b) memory of one pair of 1024 points, forward dotted, backward solid. (c) The rigid motion loss "
        "and the relative mean squared error of its gradients by source, target and normals (their mean) against "
        "auto-differentiation through as many iterations (solid) and through enough to converge (dashed)."
    )
    sources = tuple(target / name for name in FILES)
    figure = Figure("differentiation", caption, partial(_draw, time, memory, errors), sources)
    return [figure, _table(time, memory, target)]


def _table(time: list[Row], memory: list[Row], target: Path) -> Table:
    """Auto-differentiation against ours at ten iterations, as in the paper's text."""
    columns = {"backward time": (time, "milliseconds"), "backward memory": (memory, "peak_backward_bytes")}
    said = {"backward time": "backward_time", "backward memory": "backward_memory"}
    rows = []
    for name, (measured, column) in columns.items():
        here = [row for row in measured if int(row["iterations"]) == TEN and row.get("phase", "backward") == "backward"]
        by_gradient = {row["gradient"]: float(row[column]) for row in here}
        source = target / ("time.csv" if measured is time else "memory.csv")
        cells = [Cell(name)]
        for gradient in ("exact", "penalty"):
            ratio = by_gradient["unrolled"] / by_gradient[gradient]
            below = f"{paper()['differentiation'][said[name]]:g} ×" if gradient == "penalty" else ""
            cells.append(Cell(f"{ratio:.1f} ×", below, source=source))
        rows.append(tuple(cells))
    header = ("", "auto / exact (ours)", "auto / penalty (the paper's)")
    return Table(header, tuple(rows), "At ten iterations; below, what the paper says of its GPU.")


def _draw(time: list[Row], memory: list[Row], errors: list[Row]) -> Any:
    from matplotlib.lines import Line2D

    figure, panels = new_figure(1, 4, width=14, height=3.7)
    a, b, c, d = panels[0]
    for gradient, color in GRADIENTS.items():
        for phase, dashes in (("forward", ":"), ("backward", "-")):
            _line(
                a,
                [row for row in time if (row["gradient"], row["phase"]) == (gradient, phase)],
                "milliseconds",
                color,
                dashes,
            )
            lines = [row for row in memory if row["gradient"] == gradient]
            _line(b, lines, f"peak_{phase}_bytes", color, dashes, 1 / 1024)
    noise = min({row["noise"] for row in errors}, key=float)
    here = [row for row in errors if row["noise"] == noise]
    _line(
        c,
        [row for row in here if (row["gradient"], row["reference"], row["input"]) == ("exact", "same", "source")],
        "loss",
        "black",
        "-",
    )
    for gradient in ("exact", "penalty"):
        for reference, dashes in (("same", "-"), ("converged", "--")):
            rows = [row for row in here if (row["gradient"], row["reference"]) == (gradient, reference)]
            _line(d, _mean_over_inputs(rows), "relative_mse", GRADIENTS[gradient], dashes)
    for panel, title, y in (
        (a, "(a) time", "milliseconds"),
        (b, "(b) memory", "peak, KB beyond the inputs"),
        (c, "(c) rigid motion loss", ""),
        (d, "(c) error of the gradient", "relative mean squared error"),
    ):
        panel.set_yscale("log")
        frame(panel, title, "iterations", y)
    handles = [Line2D([], [], color=color, lw=2, label=GRADIENT_LABELS[name]) for name, color in GRADIENTS.items()]
    legend_below(figure, handles)
    return figure


def _line(panel: Any, rows: list[Row], column: str, color: str, dashes: str, factor: float = 1.0) -> None:
    x, y = [int(row["iterations"]) for row in rows], [factor * float(row[column]) for row in rows]
    panel.plot(x, y, dashes, color=color, lw=1.8, marker="o", ms=2.5)


def _mean_over_inputs(rows: list[Row]) -> list[Row]:
    counts = sorted({int(row["iterations"]) for row in rows})
    values = {
        count: [float(row["relative_mse"]) for row in rows if int(row["iterations"]) == count] for count in counts
    }
    return [{"iterations": str(count), "relative_mse": str(sum(own) / len(own))} for count, own in values.items()]


def _read(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


DIFFERENTIATION = Experiment(
    "differentiation", "Analytic against automatic differentiation", "Figure 3", (), _render, measure=_measure
)
