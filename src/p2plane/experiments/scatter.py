"""Chamfer distances pair by pair, point head against plane head, with a line through the origin for each network."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from p2plane.experiments.blocks import Block, Cell, Figure, Note, Table
from p2plane.experiments.experiment import Experiment, runs_of
from p2plane.experiments.folder import ResultsFolder
from p2plane.experiments.rows import BASES, EXTENSIONS, Row
from p2plane.experiments.style import MARKERS, color_of, frame, legend_below, network_of, new_figure
from p2plane.experiments.tables import short

Duel = tuple[Row, np.ndarray, np.ndarray]  # the base, its distances and its extension's (P,)
_DATA = ("cpu", "icl-nuim")


def slope_through_origin(x: np.ndarray, y: np.ndarray) -> float:
    """The least squares slope of ``y = slope x``."""
    return float((x * y).sum() / max((x * x).sum(), 1e-300))


def duels(folder: ResultsFolder, data: str) -> list[Duel]:
    """The networks of which both heads were run, with the distances of the pairs that both saw."""
    found = []
    for base, extension in zip(BASES, EXTENSIONS, strict=True):
        point, plane = folder.read(data, base.name), folder.read(data, extension.name)
        if point is not None and plane is not None:
            count = min(len(point), len(plane))
            found.append((base, point.columns["chamfer"][:count], plane.columns["chamfer"][:count]))
    return found


def _render(folder: ResultsFolder) -> list[Block]:
    shown = {data: found for data in _DATA if (found := duels(folder, data))}
    if not shown:
        return [Note("No network was run with both heads.")]
    caption = (
        "Modified Chamfer distance of each test pair, point head across, plane head upward, and the regression lines "
        "through the origin, which are parallel to the diagonal on these logarithmic axes. A line under the diagonal "
        "means that the plane head is better."
    )
    both = [(data, row.name) for data in shown for row in (*BASES, *EXTENSIONS)]
    sources = tuple(results.path for data, name in both if (results := folder.read(data, name)))
    draw = partial(_draw, {folder.scale.data[data]: found for data, found in shown.items()})
    return [Figure("scatter", caption, draw, sources), _table(folder, shown)]


def _table(folder: ResultsFolder, shown: dict[str, list[Duel]]) -> Table:
    rows = []
    for data, found in shown.items():
        for base, point, plane in found:
            results = folder.read(data, base.name)
            source = results.path if results else None
            texts = [short(slope_through_origin(point, plane)), f"{(plane < point).mean():.1%}"]
            name = Cell(f"{folder.scale.data[data]}: {base.label}")
            rows.append((name, *(Cell(text, source=source) for text in texts)))
    header = ("", "slope through the origin", "pairs where the plane head is better")
    return Table(header, tuple(rows), "Plane against point, by the Chamfer distance.")


def _draw(shown: dict[str, list[Duel]]) -> Any:
    from matplotlib.lines import Line2D

    figure, panels = new_figure(1, len(shown), width=5.2 * len(shown), height=4.9)
    for panel, (where, found) in zip(panels[0], shown.items(), strict=True):
        everything = np.concatenate([distances for _, *heads in found for distances in heads])
        ends = np.array([max(everything.min(), 1e-9) / 1.5, 1.5 * everything.max()])
        for base, point, plane in found:
            color, marker = color_of(base), MARKERS[network_of(base)]
            panel.scatter(point, plane, s=9, alpha=0.35, color=color, marker=marker, lw=0)
            panel.plot(ends, slope_through_origin(point, plane) * ends, color=color, lw=2)
        panel.plot(ends, ends, color="black", lw=1)
        panel.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
        frame(panel, where, "Chamfer distance, point head", "Chamfer distance, plane head")
    bases = {base.name: base for found in shown.values() for base, _, _ in found}
    marks = [
        Line2D([], [], color=color_of(base), marker=MARKERS[network_of(base)], ms=5, lw=2, label=base.label)
        for base in bases.values()
    ]
    legend_below(figure, [*marks, Line2D([], [], color="black", lw=1, label="equal")])
    return figure


SCATTER = Experiment(
    "scatter",
    "Point head against plane head, pair by pair",
    "Figure C3",
    tuple(run for data in _DATA for run in runs_of(data, [row.name for row in (*BASES, *EXTENSIONS)])),
    _render,
)
