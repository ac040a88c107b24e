"""The page of the experiments, as HTML and as Markdown: every table and figure, and where each number came from."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p2plane.data.io import replacing
from p2plane.experiments.blocks import Block, Cell, Figure, Note, Table
from p2plane.experiments.experiment import Experiment
from p2plane.experiments.folder import ResultsFolder
from p2plane.training.folder import versions
from p2plane.work.record import record_path

DPI = 130


@dataclass(frozen=True)
class Section:
    """An experiment with what it shows."""

    experiment: Experiment
    blocks: list[Block]


@dataclass(frozen=True)
class Page:
    """All that the two files show."""

    title: str
    introduction: str
    sections: list[Section]
    settings: list[Block]
    folder: Path
    """Where it is written: links are relative to it."""
    pictures: str
    """The folder of its pictures, beside it."""

    def link(self, path: Path) -> str:
        """A relative address of a results file."""
        return Path(os.path.relpath(path, self.folder)).as_posix()

    def picture(self, figure: Figure) -> str:
        """The relative address of a picture."""
        return f"{self.pictures}/{figure.name}.png"


def write_page(
    experiments: Sequence[Experiment], folder: ResultsFolder, out: Path, name: str, problems: Sequence[str] = ()
) -> tuple[Path, Path]:
    """Write ``NAME.html`` and ``NAME.md``, and the pictures in the folder NAME beside them; the two paths."""
    from p2plane.experiments.html import html
    from p2plane.experiments.markdown import markdown

    page = make_page(experiments, folder, out, name, problems)
    (out / name).mkdir(parents=True, exist_ok=True)
    for section in page.sections:
        for block in section.blocks:
            if isinstance(block, Figure):
                with replacing(out / page.picture(block)) as file:
                    block.draw().savefig(file, dpi=DPI, format="png")
    paths = out / f"{name}.html", out / f"{name}.md"
    for path, text in zip(paths, (html(page), markdown(page)), strict=True):
        with replacing(path) as file:
            file.write(text.encode())
    return paths


def make_page(
    experiments: Sequence[Experiment], folder: ResultsFolder, out: Path, name: str, problems: Sequence[str] = ()
) -> Page:
    """The page before it is written."""
    sections = [Section(experiment, experiment.render(folder)) for experiment in experiments]
    introduction = (
        f"{folder.scale.about} Made by `p2plane reproduce {name_of(experiments)} --scale {folder.scale.name}` from "
        "results files alone; every number of ours links to the file that it came from."
    )
    settings: list[Block] = [_runs(experiments, folder), Note(_about())]
    settings += [Note(f"Not run: {problem}") for problem in problems]
    return Page("The paper's experiments", introduction, sections, settings, out, name)


def name_of(experiments: Sequence[Experiment]) -> str:
    """What to ask for to get these experiments."""
    return experiments[0].name if len(experiments) == 1 else "all"


def _runs(experiments: Sequence[Experiment], folder: ResultsFolder) -> Table:
    """What was run, with which settings, when and how long."""
    runs = dict.fromkeys((run.data, run.results_name) for each in experiments for run in each.runs)
    lines = []
    for data, name in runs:
        results = folder.read(data, name)
        if results is not None:
            settings, environment = results.record["settings"], results.record.get("environment", {})
            changes = _changed(folder.scale.row_changes.get(name, ()), settings.get("settings", {}))
            texts = [folder.scale.data[data], str(len(results)), str(settings["seed"]), str(settings["batch"])]
            texts += [_trained(settings) or changes, environment.get("finished", "")]
            lines.append((Cell(name, source=record_path(results.path)), *(Cell(text) for text in texts)))
    header = ("run", "test set", "pairs", "seed", "batch", "training, or settings changed", "finished")
    return Table(
        header,
        tuple(lines),
        "All runs; each links to all of its settings. Steps and minutes are those up to the weights that were best in "
        "validation; minutes are of wall time, many beside other work.",
    )


def _changed(changes: Sequence[str], settings: dict[str, Any]) -> str:
    """The settings that a row changes, as they were when it was run."""
    names = [change.partition("=")[0] for change in changes]
    return ", ".join(f"{name}={settings[name]}" for name in names if name in settings)


def _trained(settings: dict[str, Any]) -> str:
    """How long the weights were trained that were the best in validation."""
    notes = settings.get("training", {})
    return f"{notes['steps']} steps, {notes['minutes']:.1f} min" if {"steps", "minutes"} <= set(notes) else ""


def _about() -> str:
    made = versions()
    commit = f", commit {made['commit']}" if made.get("commit") else ""
    when = time.strftime("%Y-%m-%d")
    return (
        f"This page was made on {when} by p2plane {made['version']}{commit}, torch {made['torch']}, "
        f"Python {platform.python_version()}. Versions and times of the runs are in their records."
    )
