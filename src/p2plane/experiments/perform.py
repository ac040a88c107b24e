"""Run what an experiment needs: train what has no weights, evaluate what has no results; what is there stays."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p2plane.evaluation.run import evaluate
from p2plane.evaluation.worker import Evaluation
from p2plane.experiments.experiment import Experiment, Run
from p2plane.experiments.folder import ResultsFolder
from p2plane.experiments.rows import NETWORK, Row
from p2plane.experiments.scale import Scale
from p2plane.training.files import merged, packaged_configs, read_config, with_changes

Say = Callable[[str], None]

CHANGED_FOR = {
    "cpu": (),
    "cpu-unseen": ("data.half=first",),
    "cpu-noisy": ("data.protocol=cpu-noisy",),
    "icl-nuim": ("data.name=icl-nuim", "data.protocol=icl-nuim"),
}
"""What the configs, which are for ModelNet40-CPU, change to train for another test set."""


@dataclass(frozen=True)
class Options:
    """How to run, as far as results do not depend on it."""

    processes: int | None = None
    rows: tuple[str, ...] = ()
    """Only these rows, all where it is empty."""
    device: str = "cpu"
    """Of evaluations; trainings take what is there."""
    say: Say = print


def perform(experiments: Iterable[Experiment], folder: ResultsFolder, options: Options) -> list[str]:
    """Run everything that is missing; what could not be run, and why.

    One run that fails, for want of data for example, does not keep the others from running.
    """
    problems: dict[str, None] = {}  # in order, without repetition
    for experiment in experiments:
        for run in experiment.runs:
            is_wanted = not options.rows or run.row.name in options.rows
            if is_wanted and run.row.name not in folder.scale.same:
                _try(lambda run=run: _complete(run, folder, options), _described(run, folder), problems)  # type: ignore[misc]
        for step in (experiment.measure, experiment.keep):
            if step is not None:
                options.say(f"{experiment.name}: measuring" if step is experiment.measure else f"{experiment.name}")
                _try(lambda step=step: step(folder), experiment.name, problems)  # type: ignore[misc]
    return list(problems)


def training_values(row: Row, data: str, scale: Scale) -> dict[str, Any]:
    """The tables of the config that trains a row for a test set: one of its own, or that of ModelNet40-CPU, changed."""
    name = row.config or row.name
    if scale.quick:
        tiny = read_config(Path(__file__).with_name("smoke.toml"))
        values = merged(tiny["all"], tiny[name])
        return with_changes(values, [*CHANGED_FOR[data], "data.name=synthetic", *row.changes])
    configs, own = packaged_configs(), f"{name}-{data.removeprefix('cpu-')}{scale.config_suffix}"
    if own in configs:
        return with_changes(read_config(configs[own]), row.changes)
    general = f"{name}{scale.config_suffix}"
    if general not in configs:
        raise FileNotFoundError(f"there is no config {general}.toml")
    values = with_changes(read_config(configs[general]), [*CHANGED_FOR[data], *row.changes])
    if data in scale.training_share:
        values["budget"]["steps"] = round(scale.training_share[data] * values["budget"]["steps"])
    return values


def head_settings(row: Row, data: str, scale: Scale) -> tuple[str, ...]:
    """What a row has for its head, as settings of another network of its kind."""
    model = training_values(row, data, scale)["model"]
    match = (f"plane_match={model['plane_match']}",) if "plane_match" in model else ()
    return (*(f"head.{name}={value}" for name, value in model["head"].items()), *match)


def _complete(run: Run, folder: ResultsFolder, options: Options) -> None:
    if folder.read(run.data, run.results_name) is not None:
        return
    scale, data = folder.scale, folder.scale.data[run.data]
    method, changes = run.row.method, scale.row_changes.get(run.row.name, ())
    if run.row.kind == NETWORK:
        trained_for = "cpu" if scale.quick else run.weights_data
        weights = folder.weights(trained_for, run.row.name)
        if not weights.is_file():
            _train(run.row, trained_for, folder, options)
        method, changes = str(weights), head_settings(run.head_of, trained_for, scale) if run.head_of else ()
    options.say(f"evaluating {_described(run, folder)}")
    pairs = scale.pairs_of(run.row.name)
    evaluation = Evaluation(method, data, changes, pairs, scale.points, device=options.device)
    processes = options.processes or (1 if scale.quick else None)  # a few pairs are done before another has begun
    evaluate(evaluation, folder.of(run.data) / f"{run.results_name}.csv", processes=processes)
    folder.forget(run.data, run.results_name)


def _train(row: Row, data: str, folder: ResultsFolder, options: Options) -> None:
    from p2plane.training.config import settings_from
    from p2plane.training.run import train

    settings = settings_from(training_values(row, data, folder.scale))
    options.say(f"training {row.name} for {folder.scale.data[data]}")
    result = train(settings, folder.run(data, row.name))
    if not result.finished:  # by a signal, which is meant for the whole run; a second start goes on
        raise KeyboardInterrupt
    target = folder.weights(data, row.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(result.weights, target)


def _described(run: Run, folder: ResultsFolder) -> str:
    return f"{run.results_name} on {folder.scale.data[run.data]}"


def _try(step: Callable[[], None], name: str, problems: dict[str, None]) -> None:
    try:
        step()
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        problems[f"{name}: {error}"] = None
