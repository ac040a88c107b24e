"""Table 5: networks trained with the point head and tested with the plane head. Is training with it needed?"""

from __future__ import annotations

from p2plane.evaluation.results import Results
from p2plane.experiments.blocks import Block
from p2plane.experiments.experiment import Experiment, Run
from p2plane.experiments.folder import ResultsFolder
from p2plane.experiments.rows import BASES, EXTENSIONS, Row
from p2plane.experiments.tables import comparison

TESTED_WITH_PLANE = "-tested-with-plane"


def _name(row: Row) -> str:
    return row.name + TESTED_WITH_PLANE


def _render(folder: ResultsFolder) -> list[Block]:
    rows: list[tuple[Row, Results | None]] = []
    for base, extension in zip(BASES, EXTENSIONS, strict=True):
        rows.append(
            (Row(f"{base.name}-alone", f"{base.label}: point, point", base.kind), folder.read("cpu", base.name))
        )
        tested = Row(base.name, f"{base.label}: point, plane", base.kind, base=f"{base.name}-alone")
        rows.append((tested, folder.read("cpu", _name(base))))
        trained = Row(extension.name, f"{base.label}: plane, plane", base.kind, base=f"{base.name}-alone")
        rows.append((trained, folder.read("cpu", extension.name)))
    caption = (
        f"{folder.scale.data['cpu']}: the head in training, then the head in testing. Below our numbers the paper's "
        "for the mixed rows. ★ marks the best of a column; a row is bold where it beats point, point."
    )
    return [comparison(rows, "plane-for-testing", caption)]


PLANE_FOR_TESTING = Experiment(
    "plane-for-testing",
    "The plane head for testing only",
    "Table 5",
    (
        *(Run(row, "cpu") for row in (*BASES, *EXTENSIONS)),
        *(
            Run(base, "cpu", name=_name(base), head_of=extension)
            for base, extension in zip(BASES, EXTENSIONS, strict=True)
        ),
    ),
    _render,
)
