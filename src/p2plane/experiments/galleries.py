"""Where planes help and where they harm: pairs chosen by a rule, with their Chamfer distances.

Better: for each network the pairs whose Chamfer distance the plane head lowers most. Worse: the pairs on which the
plane heads of all networks lose to their bases, those first that lose most in all. Each on ModelNet40-CPU and, with the
same weights, on plain ModelNet40, where one sees whether shapes lie on each other.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from p2plane.evaluation.results import Results
from p2plane.experiments.blocks import Block, Cell, Figure, Note, Table
from p2plane.experiments.experiment import Experiment, runs_of
from p2plane.experiments.folder import ResultsFolder
from p2plane.experiments.rows import BASES, EXTENSIONS, Row
from p2plane.experiments.scatter import Duel, duels
from p2plane.experiments.scenes import scene_figure, show_pair
from p2plane.experiments.tables import short

BETTER_EACH, WORSE_ALL = 2, 3
_DATA = ("cpu", "plain")
_EXTENSION_OF = {row.base: row for row in EXTENSIONS}


def better_pairs(duel: Duel, count: int = BETTER_EACH) -> list[int]:
    """The pairs whose distance the plane head lowers most, if it does."""
    _, point, plane = duel
    gains = point - plane
    return [int(index) for index in np.argsort(-gains, kind="stable")[:count] if gains[index] > 0]


def worse_pairs(found: list[Duel], count: int = WORSE_ALL) -> list[int]:
    """The pairs on which every plane head loses to its base, those first that lose most in all."""
    if not found:
        return []
    seen = min(len(point) for _, point, _ in found)
    losses = np.stack([plane[:seen] - point[:seen] for _, point, plane in found])  # (networks, P)
    lost = np.all(losses > 0, axis=0)
    order = np.argsort(-np.where(lost, losses.sum(axis=0), -np.inf), kind="stable")
    return [int(index) for index in order[:count] if lost[index]]


def _keep(folder: ResultsFolder) -> None:
    for data in _DATA:
        found = duels(folder, data)
        chosen = [index for duel in found for index in better_pairs(duel)] + worse_pairs(found)
        if chosen:
            folder.keep(data, sorted(set(chosen)))


def _render(folder: ResultsFolder) -> list[Block]:
    blocks: list[Block] = []
    for data in _DATA:
        found, where = duels(folder, data), folder.scale.data[data]
        if not found:
            blocks.append(Note(f"{where}: no network was run with both heads."))
            continue
        blocks += _better(folder, data, found, where) + _worse(folder, data, found, where)
    return blocks


def _better(folder: ResultsFolder, data: str, found: list[Duel], where: str) -> list[Block]:
    chosen = [(base, index) for duel in found for base, index in [(duel[0], i) for i in better_pairs(duel)]]
    if not chosen:
        return [Note(f"{where}: no plane head lowered any Chamfer distance.")]
    caption = f"{where}: the pairs whose Chamfer distance (CD) the plane head lowers most, for each network."
    cases = [(base.label, index, [base, _EXTENSION_OF[base.name]]) for base, index in chosen]
    return _gallery(folder, data, f"better-{where}", caption, cases)


def _worse(folder: ResultsFolder, data: str, found: list[Duel], where: str) -> list[Block]:
    labels = ", ".join(base.label for base, _, _ in found)
    chosen = worse_pairs(found)
    if not chosen:
        return [Note(f"{where}: there is no pair on which the plane heads of all networks ({labels}) lose.")]
    caption = f"{where}: pairs on which the plane heads of all networks ({labels}) lose to their bases."
    shown = [row for base, _, _ in found for row in (base, _EXTENSION_OF[base.name])]
    return _gallery(folder, data, f"worse-{where}", caption, [("", index, shown) for index in chosen])


Case = tuple[str, int, list[Row]]


def _gallery(folder: ResultsFolder, data: str, name: str, caption: str, cases: list[Case]) -> list[Block]:
    """The pictures, and the distances as a table."""
    results = {row.name: found for _, _, rows in cases for row in rows if (found := folder.read(data, row.name))}
    sources = tuple(found.path for found in results.values())
    blocks: list[Block] = []
    if any(folder.clouds(data, index) is None for _, index, _ in cases):
        blocks.append(Note(f"{caption} The pictures need the data: set P2PLANE_DATA."))
    else:
        blocks.append(Figure(name, caption, partial(_draw, folder, data, cases, results), sources))
    lines = [_line(label, index, row, results[row.name]) for label, index, rows in cases for row in rows]
    return [*blocks, Table(("pair", "network", "CD"), tuple(lines), "Their Chamfer distances.")]


def _line(label: str, index: int, row: Row, results: Results) -> tuple[Cell, ...]:
    return Cell(str(index)), Cell(row.label), Cell(short(results.columns["chamfer"][index]), source=results.path)


def _draw(folder: ResultsFolder, data: str, cases: list[Case], results: dict[str, Results]) -> Any:
    """A line for each case, or for two of them where they are short."""
    width = 1 + max(len(rows) for _, _, rows in cases)
    beside = 2 if width <= 3 else 1
    figure, panels = scene_figure(-(-len(cases) // beside), width * beside)
    for place, (_, index, rows) in enumerate(cases):
        line, column = divmod(place, beside)
        own = panels[line][width * column : width * (column + 1)]
        clouds = folder.clouds(data, index)
        assert clouds is not None
        show_pair(own[0], clouds, None, f"pair {index}\nas given")
        for panel, row in zip(own[1:], rows, strict=False):
            found = results[row.name]
            distance = short(found.columns["chamfer"][index])
            show_pair(panel, clouds, found.T_estimate[index].numpy(), f"{row.label}\nCD {distance}")
    return figure


_NAMES = [row.name for row in (*BASES, *EXTENSIONS)]
GALLERIES = Experiment(
    "galleries",
    "Where planes help, and where they harm",
    "Figures C4 to C7",
    (*runs_of("cpu", _NAMES), *runs_of("plain", _NAMES, trained_on="cpu")),
    _render,
    keep=_keep,
)
