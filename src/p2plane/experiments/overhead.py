"""Table 4: what the plane head costs more than the point head; and what it would cost without the analytic gradient."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import torch

from p2plane.experiments.blocks import Block, Cell, Note, Table
from p2plane.experiments.experiment import Experiment
from p2plane.experiments.folder import ResultsFolder
from p2plane.experiments.paper import paper
from p2plane.experiments.steps import NETWORKS, PHASES, QUICK, Effort, memory_of, times_of
from p2plane.training.folder import versions
from p2plane.work.files import replacing

LABELS = {"dcp-v2": "DCP-v2", "prnet": "PRNet", "rpmnet": "RPMNet"}
HEAD_LABELS = {"plane": "plane head", "published": "plane head, as published", "unrolled": "plane head, unrolled"}
KINDS = {"time": times_of, "memory": memory_of}


def _file(folder: ResultsFolder, kind: str) -> Path:
    return folder.path / "overhead" / f"{kind}.csv"


def _measure(folder: ResultsFolder) -> None:
    effort = QUICK if folder.scale.quick else Effort()
    for kind, measured in KINDS.items():
        path = _file(folder, kind)
        if path.is_file():
            continue
        rows = [row for network in NETWORKS for row in measured(network, effort)]
        path.parent.mkdir(parents=True, exist_ok=True)
        about = {**versions(), "threads": torch.get_num_threads(), "effort": effort.__dict__}
        path.with_suffix(".json").write_text(json.dumps(about, indent=2) + "\n")
        with replacing(path) as temporary, temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


def _render(folder: ResultsFolder) -> list[Block]:
    paths = {kind: _file(folder, kind) for kind in KINDS}
    missing = [kind for kind, path in paths.items() if not path.is_file()]
    if missing:
        return [Note(f"Not measured: {' and '.join(missing)}.")]
    rows = {kind: _read(path) for kind, path in paths.items()}
    lines = [_line(rows[kind], head, kind, paths[kind]) for head in HEAD_LABELS for kind in KINDS]
    header = ("", *(f"{label}, {phase}" for label in LABELS.values() for phase in PHASES))
    effort = json.loads(paths["time"].with_suffix(".json").read_text())["effort"]
    caption = (
        "What a step costs more than with the point head; below, the paper's numbers, which are for its own gradient. "
        f"Batch {effort['batch']} of {effort['points'] * 3 // 4} points. The rounds of a network are the same with all "
        "heads; DCP-v2 and PRNet with the plane head see normals too. Times are medians over turns in which the heads "
        "follow one another; memory is that of tensors."
    )
    return [Table(header, tuple(lines), caption), Note(_about_unrolled(rows["time"]))]


def _read(path: Path) -> dict[Any, dict[str, str]]:
    with path.open(newline="") as file:
        return {(row["network"], row["head"], row["phase"]): row for row in csv.DictReader(file)}


def _line(rows: dict[Any, dict[str, str]], head: str, kind: str, path: Path) -> tuple[Cell, ...]:
    cells = [Cell(f"{HEAD_LABELS[head]}: {kind}")]
    for network in LABELS:
        for place, phase in enumerate(PHASES):
            value = rows[network, head, phase][f"{kind}_ratio"]
            below = f"{paper()['overhead'][network][kind][place]:+.3g} %" if head == "published" else ""
            if head == "unrolled" and phase == "test":
                cells.append(Cell("–"))  # there is nothing to differentiate
            else:
                cells.append(Cell(_percent(value), below, source=path))
    return tuple(cells)


def _about_unrolled(rows: dict[Any, dict[str, str]]) -> str:
    measured = ", ".join(
        f"{_percent(rows[network, 'unrolled', 'train']['time_ratio'])} for {label}" for network, label in LABELS.items()
    )
    estimate = paper()["differentiation"]["training_overhead_percent"]
    return (
        "Training with the unrolled iteration, which the paper does not measure but estimates at "
        f"+{estimate:g} % of time for RPMNet, takes {measured} more than with the point head."
    )


def _percent(ratio: str) -> str:
    return f"{100 * (float(ratio) - 1):+.1f} %"


OVERHEAD = Experiment("overhead", "What the plane head costs", "Table 4", (), _render, measure=_measure)
