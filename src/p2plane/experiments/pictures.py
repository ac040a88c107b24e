"""The teaser and the results figure: what RPMNet with the plane head makes of pairs, from good ones to bad ones.

The pairs are not picked by hand: they stand at fixed places in the order of the angle errors.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from p2plane.evaluation.results import Results
from p2plane.experiments.blocks import Block, Figure, Note
from p2plane.experiments.experiment import Experiment, runs_of
from p2plane.experiments.folder import ResultsFolder
from p2plane.experiments.scenes import scene_figure, show_pair

ROW = "rpmnet-plane"
TEASER, RESULTS = (0.5,), (0.1, 0.3, 0.5, 0.7, 0.9)
_DATA = ("plain", "icl-nuim")


def pairs_at(results: Results, quantiles: tuple[float, ...]) -> list[int]:
    """The pairs at these places in the order of the angle errors, without repetition."""
    order = np.argsort(results.columns["angle_deg"], kind="stable")
    return list(dict.fromkeys(int(order[round(quantile * (len(order) - 1))]) for quantile in quantiles))


def _keep(quantiles: tuple[float, ...], folder: ResultsFolder) -> None:
    for data in _DATA:
        results = folder.read(data, ROW)
        if results is not None:
            folder.keep(data, pairs_at(results, quantiles))


def _render(name: str, quantiles: tuple[float, ...], caption: str, folder: ResultsFolder) -> list[Block]:
    found = {data: results for data in _DATA if (results := folder.read(data, ROW))}
    shown = [(data, index) for data, results in found.items() for index in pairs_at(results, quantiles)]
    if not shown:
        return [Note("RPMNet with the plane head was not run.")]
    if any(folder.clouds(data, index) is None for data, index in shown):
        return [Note("The pictures need the data: set P2PLANE_DATA.")]
    where = " and ".join(folder.scale.data[data] for data in found)
    sources = tuple(results.path for results in found.values())
    return [Figure(name, caption.format(where=where), partial(_draw, folder, shown, found), sources)]


def _draw(folder: ResultsFolder, shown: list[tuple[str, int]], found: dict[str, Results]) -> Any:
    """Before above after; one column for each pair, or both beside each other for two pairs."""
    beside = len(shown) <= 2
    figure, panels = scene_figure(1, 2 * len(shown), size=2.6) if beside else scene_figure(2, len(shown), size=1.7)
    for place, (data, index) in enumerate(shown):
        clouds = folder.clouds(data, index)
        assert clouds is not None
        before, after = panels[0][2 * place : 2 * place + 2] if beside else (panels[0][place], panels[1][place])
        error = found[data].columns["angle_deg"][index]
        show_pair(before, clouds, None, f"{folder.scale.data[data]}\npair {index}")
        show_pair(after, clouds, found[data].T_estimate[index].numpy(), f"off by {error:.2f}°")
    return figure


_RUNS = (*runs_of("plain", [ROW], trained_on="cpu"), *runs_of("icl-nuim", [ROW]))
_SOURCE = "Source in orange, target in blue, before and after RPMNet with the plane head, on {where}. "

TEASER_FIGURE = Experiment(
    "teaser",
    "Pairs before and after",
    "Figure 1",
    _RUNS,
    partial(_render, "teaser", TEASER, _SOURCE + "The pairs are those with the median angle error."),
    keep=partial(_keep, TEASER),
)
RESULTS_FIGURE = Experiment(
    "results-figure",
    "From good pairs to bad ones",
    "Figure 2",
    _RUNS,
    partial(
        _render,
        "results",
        RESULTS,
        _SOURCE + "The pairs are those at 10, 30, 50, 70 and 90 percent in the order of angle errors; for plain "
        "ModelNet40, the network was trained with ModelNet40-CPU.",
    ),
    keep=partial(_keep, RESULTS),
)
