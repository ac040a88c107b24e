"""Figures, drawn from the CSV files and nothing else."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

try:
    import matplotlib
except ImportError as error:
    raise ImportError("the charts need matplotlib: pip install 'p2plane[view]'") from error

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator

COLORS = {"exact": "#0072b2", "penalty": "#e69f00", "unrolled": "#555555"}
LABELS = {"exact": "exact (this library)", "penalty": "penalty (the paper)", "unrolled": "auto-differentiation"}
DASHES = {"source": "-", "target": "--", "normals": ":"}
REFERENCES = {"same": "as many iterations", "converged": "converged (60)"}

Row = dict[str, str]


def draw(folder: Path) -> None:
    """Every figure whose numbers are in the folder, beside them."""
    _draw_time(_read(folder / "time.csv"), folder / "time.png")
    _draw_memory(_read(folder / "memory.csv"), folder / "memory.png")
    errors = _read(folder / "errors.csv")
    _draw_errors(errors, "mse", "mean squared error", folder / "errors_mse.png")
    _draw_errors(errors, "relative_mse", "relative mean squared error", folder / "errors_relative_mse.png")


def _draw_time(rows: list[Row], path: Path) -> None:
    figure, panels = plt.subplots(1, 2, figsize=(9.5, 3.9), sharey=True, layout="constrained")
    for panel, phase in zip(panels, ("forward", "backward"), strict=True):
        for gradient in COLORS:
            lines = [row for row in rows if row["phase"] == phase and row["gradient"] == gradient]
            counts = _numbers(lines, "iterations")
            panel.plot(counts, _numbers(lines, "milliseconds"), "o-", ms=3, color=COLORS[gradient])
            low, high = _numbers(lines, "lower_quartile"), _numbers(lines, "upper_quartile")
            panel.fill_between(counts, low, high, color=COLORS[gradient], alpha=0.2, lw=0)
        _finish(panel, phase)
    _plain_numbers(panels[0])
    panels[0].set_ylabel("milliseconds, median and quartiles")
    _legend(figure, COLORS)
    _save(figure, "Time of one pair of 1024 points, float32", path)


def _draw_memory(rows: list[Row], path: Path) -> None:
    titles = {
        "saved_bytes": "saved for backward",
        "peak_forward_bytes": "peak in forward",
        "peak_backward_bytes": "peak in backward",
    }
    figure, panels = plt.subplots(1, 3, figsize=(12, 3.9), sharey=True, layout="constrained")
    for panel, (column, title) in zip(panels, titles.items(), strict=True):
        for gradient, width in zip(COLORS, (5, 1.5, 1.5), strict=True):  # exact and penalty save the same
            lines = [row for row in rows if row["gradient"] == gradient]
            kilobytes = [value / 1024 for value in _numbers(lines, column)]
            panel.plot(_numbers(lines, "iterations"), kilobytes, color=COLORS[gradient], lw=width)
        _finish(panel, title)
    _plain_numbers(panels[0])
    panels[0].set_ylabel("KB beyond the inputs")
    _legend(figure, COLORS)
    _save(figure, "Memory of one pair of 1024 points, float32", path)


def _draw_errors(rows: list[Row], column: str, title: str, path: Path) -> None:
    noises = sorted({row["noise"] for row in rows}, key=float)
    figure, grid = plt.subplots(
        len(noises), 3, figsize=(12, 3.2 * len(noises)), squeeze=False, sharex=True, layout="constrained"
    )
    for (first, *panels), noise in zip(grid, noises, strict=True):
        here = [row for row in rows if row["noise"] == noise]
        losses = {float(row["iterations"]): float(row["loss"]) for row in here}
        first.plot(list(losses), list(losses.values()), "o-", ms=3, color="black")
        _finish(first, f"noise {noise}")
        first.set_ylabel("rigid motion loss")
        for panel, reference in zip(panels, REFERENCES, strict=True):
            _draw_error_lines(panel, [row for row in here if row["reference"] == reference], column)
            _finish(panel, f"against auto-differentiation, {REFERENCES[reference]}")
        panels[0].set_ylabel(title)
        low = min(panel.get_ylim()[0] for panel in panels)
        high = max(panel.get_ylim()[1] for panel in panels)
        for panel in panels:
            panel.set_ylim(low, high)
    _legend(figure, ("exact", "penalty"), DASHES)
    _save(figure, "Gradients of the rigid motion loss, float64, medians over pairs of 1024 points", path)


def _draw_error_lines(panel: Axes, rows: list[Row], column: str) -> None:
    for gradient in ("exact", "penalty"):
        for name, dashes in DASHES.items():
            lines = [row for row in rows if row["gradient"] == gradient and row["input"] == name]
            panel.plot(_numbers(lines, "iterations"), _numbers(lines, column), dashes, color=COLORS[gradient])


def _finish(panel: Axes, title: str) -> None:
    panel.set(yscale="log", title=title, xlabel="iterations", xticks=[1, 5, 10, 15, 20])
    panel.title.set_fontsize(10)
    panel.minorticks_off()
    panel.grid(alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)


def _plain_numbers(panel: Axes) -> None:
    """Ticks at 1, 2, 5, 10, ... instead of powers of ten."""
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _legend(figure: Figure, gradients: Iterable[str], dashes: dict[str, str] | None = None) -> None:
    handles = [Line2D([], [], color=COLORS[name], lw=2.5, label=LABELS[name]) for name in gradients]
    handles += [Line2D([], [], color="black", ls=ls, label=f"by {name}") for name, ls in (dashes or {}).items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)


def _save(figure: Figure, title: str, path: Path) -> None:
    figure.suptitle(title, fontsize=12)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _numbers(rows: list[Row], column: str) -> list[float]:
    return [float(row[column]) for row in rows]


def _read(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
