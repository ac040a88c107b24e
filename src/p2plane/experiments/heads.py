"""Ours beyond the paper: RPMNet's plane head as the paper has it against ours, with exact and with noisy normals.

Trained once, with exact ones.
"""

from __future__ import annotations

from p2plane.experiments.blocks import Block
from p2plane.experiments.experiment import Experiment, runs_of
from p2plane.experiments.folder import ResultsFolder
from p2plane.experiments.rows import BY_NAME, EXACT_HEAD, OUR_HEAD, PUBLISHED_HEAD
from p2plane.experiments.tables import comparison, the_rest

_ROWS = ("rpmnet-point", PUBLISHED_HEAD.name, EXACT_HEAD.name, OUR_HEAD.name)


def _render(folder: ResultsFolder) -> list[Block]:
    blocks: list[Block] = []
    for data in ("cpu", "cpu-noisy"):
        rows = [(BY_NAME[name], folder.read(data, name)) for name in _ROWS]
        where = folder.scale.data[data]
        trained = f"RPMNet with each head, trained for {folder.scale.data['cpu']}"
        caption = f"{where}: {trained}. Bold where a plane head beats the point head; ★ marks the best."
        blocks += [comparison(rows, "", caption), the_rest(rows, f"{where}: the rest.")]
    return blocks


HEADS = Experiment(
    "heads",
    "What our changes to the plane head buy",
    "ours",
    tuple(run for data in ("cpu", "cpu-noisy") for run in runs_of(data, (*_ROWS, "rpmnet-plane"), "cpu")),
    _render,
)
