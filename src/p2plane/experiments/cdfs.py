"""The cumulative distributions of the three errors: for what share of the pairs is a method at least so good?"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from p2plane.evaluation.results import Results
from p2plane.evaluation.rows import EULER, TRANSLATION
from p2plane.experiments.blocks import Block, Figure, Note
from p2plane.experiments.experiment import Experiment, runs_of
from p2plane.experiments.folder import ResultsFolder
from p2plane.experiments.rows import BASES, EXTENSIONS, Row
from p2plane.experiments.style import color_of, dashes_of, frame, legend_below, new_figure

_SHOWN = tuple(row for pair in zip(BASES, EXTENSIONS, strict=True) for row in pair)
_TITLES = {"rotation": "RMSE(R), degrees", "translation": "RMSE(t)", "chamfer": "modified Chamfer distance"}


def errors_of(results: Results) -> dict[str, np.ndarray]:
    """(P,) the three errors of each pair: root mean square over the axes, and the Chamfer distance."""
    return {
        "rotation": _root_mean_square(results, EULER),
        "translation": _root_mean_square(results, TRANSLATION),
        "chamfer": results.columns["chamfer"],
    }


def _root_mean_square(results: Results, names: tuple[str, ...]) -> np.ndarray:
    return np.sqrt(np.mean([results.columns[name] ** 2 for name in names], axis=0))


def _render(folder: ResultsFolder) -> list[Block]:
    blocks: list[Block] = []
    for data in ("cpu", "icl-nuim"):
        known = [(row, results) for row in _SHOWN if (results := folder.read(data, row.name))]
        where = folder.scale.data[data]
        if not known:
            blocks.append(Note(f"No network was run on {where}."))
            continue
        caption = (
            f"{where}: share of the test pairs with at most that error. Higher is better; dashed: point head, "
            "solid: plane head. The axes end a little beyond where the median method has nine tenths of its pairs."
        )
        sources = tuple(results.path for _, results in known)
        blocks.append(Figure(f"cdf-{where}", caption, partial(_draw, known), sources))
    return blocks


def _draw(known: list[tuple[Row, Results]]) -> Any:
    figure, panels = new_figure(1, 3, width=11, sharey=True)
    for panel, (error, title) in zip(panels[0], _TITLES.items(), strict=True):
        values = {row.name: np.sort(errors_of(results)[error]) for row, results in known}
        for row, _ in known:
            own = values[row.name]
            shares = np.arange(1, len(own) + 1) / len(own)
            panel.step(np.r_[0, own], np.r_[0, shares], dashes_of(row), where="post", color=color_of(row), lw=1.8)
        end = 1.3 * float(np.median([np.quantile(own, 0.9) for own in values.values()]))
        panel.set(xlim=(0, end or 1), ylim=(0, 1.01))
        panel.locator_params(axis="x", nbins=5)
        frame(panel, "", title, "share of pairs" if panel is panels[0][0] else "")
    legend_below(figure, [_handle(row) for row, _ in known], 6)
    return figure


def _handle(row: Row) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=color_of(row), ls=dashes_of(row), lw=1.8, label=row.label)


CDFS = Experiment(
    "cdfs",
    "Cumulative distributions of the errors",
    "Figures C1 and C2",
    tuple(run for data in ("cpu", "icl-nuim") for run in runs_of(data, [row.name for row in _SHOWN])),
    _render,
)
