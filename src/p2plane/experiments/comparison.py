"""Tables 1 to 3: the paper's thirteen rows, and ours, on ModelNet40-CPU, on its unseen categories, and on ICL-NUIM."""

from __future__ import annotations

from functools import partial

from p2plane.evaluation.results import Results
from p2plane.experiments.blocks import Block, Note
from p2plane.experiments.experiment import Experiment, runs_of
from p2plane.experiments.folder import ResultsFolder
from p2plane.experiments.plane_for_testing import TESTED_WITH_PLANE
from p2plane.experiments.rows import BY_NAME, METHOD, PLANES_ALONE, REGISTER, ROWS, RRI, TESSERA, TESSERA_UNSEEN, Row
from p2plane.experiments.tables import comparison, the_rest

MARKS = (
    "The first number of a cell is ours, the small one below it the paper's. ★ marks the best of a column, of ours and "
    "of the paper's; an extension is bold where it beats its base."
)


def experiment(name: str, data: str, paper_table: str, reference: str, title: str, more: tuple[Row, ...]) -> Experiment:
    """The experiment of one of the three tables."""
    rows = (*ROWS, *more)
    runs = tuple(runs_of(data, [row.name for row in rows]))
    return Experiment(name, title, reference, runs, partial(_render, data, paper_table, rows))


def _render(data: str, paper_table: str, wanted: tuple[Row, ...], folder: ResultsFolder) -> list[Block]:
    rows: list[tuple[Row, Results | None]] = [(row, folder.read(data, row.name)) for row in wanted]
    known = (
        {row.name for row, _ in rows}
        | set(BY_NAME)
        | {name for name in folder.names(data) if TESTED_WITH_PLANE in name}
    )
    others = [name for name in folder.names(data) if name not in known]
    rows += [(Row(name, name, METHOD), folder.read(data, name)) for name in others]
    where = folder.scale.data[data]
    main = comparison(rows, paper_table, f"{where}. {MARKS}")
    blocks: list[Block] = [main, the_rest(rows, f"{where}: what the paper does not tabulate.")]
    return blocks + _missing(rows)


def _missing(rows: list[tuple[Row, Results | None]]) -> list[Block]:
    names = [row.label for row, results in rows if results is None]
    return [Note(f"Not run at this scale: {', '.join(names)}.")] if names else []


MODELNET40_CPU = experiment(
    "modelnet40-cpu",
    "cpu",
    "modelnet40-cpu",
    "Table 1",
    "ModelNet40-CPU: composed, partial, unduplicated",
    (PLANES_ALONE, RRI, TESSERA, REGISTER),
)
CPU_UNSEEN = experiment(
    "cpu-unseen",
    "cpu-unseen",
    "modelnet40-cpu-unseen",
    "Table 2",
    "ModelNet40-CPU, categories not trained with",
    (PLANES_ALONE, TESSERA_UNSEEN, TESSERA, REGISTER),
)
ICL_NUIM = experiment(
    "icl-nuim",
    "icl-nuim",
    "icl-nuim",
    "Table 3",
    "ICL-NUIM, normals estimated",
    (PLANES_ALONE, TESSERA, REGISTER),
)
