"""Ours beyond the paper: noise, estimated normals and any rotation, where classical methods break."""

from __future__ import annotations

import numpy as np

from p2plane.evaluation.results import FAILED_ABOVE_DEG, FAILED_ABOVE_LENGTH, Results
from p2plane.experiments.blocks import Block, Cell, Table
from p2plane.experiments.experiment import Experiment, runs_of
from p2plane.experiments.folder import ResultsFolder
from p2plane.experiments.rows import BY_NAME, REGISTER, TESSERA
from p2plane.experiments.tables import comparison, the_rest

_DATA = ("cpu-noisy", "cpu-noisy-so3")
_ROWS = ("icp", "fgr", "ransac-10k", TESSERA.name, REGISTER.name)
_TRUSTED = ("cpu", "cpu-unseen", "icl-nuim", *_DATA)


def _render(folder: ResultsFolder) -> list[Block]:
    blocks: list[Block] = []
    for data in _DATA:
        rows = [(BY_NAME[name], folder.read(data, name)) for name in _ROWS]
        where = folder.scale.data[data]
        blocks += [comparison(rows, "", f"{where}. ★ marks the best."), the_rest(rows, f"{where}: the rest.")]
    return [*blocks, _trust(folder)]


def _trust(folder: ResultsFolder) -> Table:
    """What `register` said of its own answers, on every test set."""
    found = [(data, folder.read(data, REGISTER.name)) for data in _TRUSTED]
    lines = tuple(_trusted(folder.scale.data[data], results) for data, results in found if results)
    header = ("test set", "pairs", "wrong", "confident", "confident and wrong", "right and confident")
    wrong = f"A pose is wrong where it is off by more than {FAILED_ABOVE_DEG:g} degrees or {FAILED_ABOVE_LENGTH:g}."
    return Table(header, lines, f"What register says of its own answers. {wrong}")


def _trusted(where: str, results: Results) -> tuple[Cell, ...]:
    confident = results.columns["converged"] > 0
    wrong = results.failed
    right = np.count_nonzero(~wrong)
    both = np.count_nonzero(confident & ~wrong)
    share = f"{both} of {right}, {both / right:.1%}" if right else "0 of 0"
    counts = [np.count_nonzero(each) for each in (wrong, confident, confident & wrong)]
    texts = [str(len(results)), *(str(count) for count in counts), share]
    return Cell(where), *(Cell(text, source=results.path) for text in texts)


HARD = Experiment(
    "hard",
    "Noise, estimated normals, any rotation",
    "ours",
    tuple(run for data in _DATA for run in runs_of(data, _ROWS)),
    _render,
)
