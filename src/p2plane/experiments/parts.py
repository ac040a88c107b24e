"""Ours beyond the paper: what each part of Tessera is worth, and its plane head against its point head.

Each is trained anew, with the same short budget, on the built-in shapes. At the small scale the training turns pairs by
no more than 45 degrees about each axis; the test set with any rotation shows what carries beyond.
"""

from __future__ import annotations

from p2plane.experiments.blocks import Block
from p2plane.experiments.experiment import Experiment, runs_of
from p2plane.experiments.folder import ResultsFolder
from p2plane.experiments.rows import PARTS as ROWS
from p2plane.experiments.tables import comparison, the_rest

_DATA = ("cpu", "cpu-noisy", "cpu-noisy-so3")


def _render(folder: ResultsFolder) -> list[Block]:
    blocks: list[Block] = []
    for data in _DATA:
        rows = [(row, folder.read(data, row.name)) for row in ROWS]
        where = folder.scale.data[data]
        caption = f"{where}: Tessera after a short training. Bold where it is better than the whole; ★ marks the best."
        blocks += [comparison(rows, "", caption), the_rest(rows, f"{where}: the rest.")]
    return blocks


PARTS = Experiment(
    "parts",
    "What each part of Tessera is worth",
    "ours",
    tuple(run for data in _DATA for run in runs_of(data, [row.name for row in ROWS], "cpu")),
    _render,
)
