"""Broken poses, lists, settings, results and checkpoints.

Each is read, or refused with a ValueError that names it: no other exception, and no warning.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from p2plane.batch import register_many
from p2plane.batch.pairs import open_pairs
from p2plane.batch.results import read_rows
from p2plane.evaluation.results import read_results
from p2plane.evaluation.run import evaluate
from p2plane.odometry.poses import read_times
from p2plane.registration.summary import load_pose
from p2plane.training import load_settings, train
from p2plane.training.files import find_config, read_config, to_toml
from tests.batch.lists import SETTINGS, small_motion, write_list
from tests.data.mutations import little_memory, mutate
from tests.evaluation.tiny import tiny_evaluation, tiny_weights
from tests.training.tiny import tiny
from torture.conftest import Note
from torture.test_files import COUNT, HOLE, MEMORY

CUTS = 40
RESUMED = COUNT // 25  # of what takes seconds each


class Kind(NamedTuple):
    """A file of the folder of good ones, and what reads it."""

    name: str
    read: Callable[[Path], object]
    is_named: bool = True
    """Whether refusals name the file; those of a config may name a setting instead."""


KINDS = {
    "a pose in .txt": Kind("pose.txt", load_pose),
    "a pose in .npy": Kind("pose.npy", load_pose),
    "a pose in .json": Kind("pose.json", load_pose),
    "times of scans": Kind("times.txt", read_times),
    "a list of pairs": Kind("pairs.csv", open_pairs),
    "a config": Kind("config.toml", load_settings, is_named=False),
    "rows of a batch in .csv": Kind("batch.csv", lambda path: list(read_rows(path))),
    "rows of a batch in .parquet": Kind("batch.parquet", lambda path: list(read_rows(path))),
    "rows of an evaluation in .csv": Kind("evaluation.csv", read_results),
    "rows of an evaluation in .parquet": Kind("evaluation.parquet", read_results),
    "the record of an evaluation": Kind("evaluation.json", lambda path: read_results(path.with_suffix(".csv"))),
}
POSES = [name for name, kind in KINDS.items() if kind.read is load_pose]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a good file of each kind, and all that these need beside them."""
    folder = tmp_path_factory.mktemp("good")
    pairs, evaluation = write_list(folder, 5), tiny_evaluation(tiny_weights(folder))
    for suffix in (".csv", ".parquet"):
        register_many(pairs, folder / f"batch{suffix}", processes=1, **SETTINGS)
        evaluate(evaluation, folder / f"evaluation{suffix}", processes=1, show_progress=False)
    pose = small_motion(0).numpy()
    np.savetxt(folder / "pose.txt", pose)
    np.save(folder / "pose.npy", pose)
    (folder / "pose.json").write_text(f'{{"T_target_source": {pose.tolist()}}}')
    (folder / "times.txt").write_text("".join(f"{index / 10:.3f}\n" for index in range(50)))
    (folder / "config.toml").write_text(to_toml(read_config(find_config("smoke"))))
    return folder


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(good, tmp_path / "broken"))


@pytest.mark.parametrize("what", KINDS)
def test_mutated_and_cut(what: str, folder: Path, note: Note) -> None:
    name, read, is_named = KINDS[what]
    content, path, refused = (folder / name).read_bytes(), folder / name, 0
    for broken in _broken(content, COUNT, shift=random.Random(what).randrange(10**6)):
        path.write_bytes(broken)
        with little_memory(MEMORY):
            refused += _is_refused(lambda: read(path), str(folder) if is_named else "")
    total = COUNT + CUTS
    note(f"{what}: {COUNT} mutations, and cut at {CUTS} places", f"{refused} refused, {total - refused} read")


@pytest.mark.parametrize("what", POSES)
def test_a_pose_of_forty_gigabytes(what: str, tmp_path: Path, note: Note) -> None:
    path = tmp_path / KINDS[what].name
    with path.open("wb") as file:
        file.truncate(HOLE)
    with little_memory(MEMORY), pytest.raises(ValueError, match="must hold a 4x4 matrix"):
        load_pose(path)
    path.unlink()
    note(f"{what} of 40 GB, all zeros", "`ValueError` that names the file")


@pytest.mark.parametrize("name", ["batch.csv", "batch.json", "batch.parquet"])
@pytest.mark.limit(600)
def test_a_batch_that_goes_on(name: str, good: Path, tmp_path: Path, note: Note) -> None:
    out = name if name != "batch.json" else "batch.csv"
    refused = _resumed(
        good / name,
        [good / out, good / "batch.json"],
        tmp_path / "run",
        lambda folder: register_many(good / "pairs.csv", folder / out, processes=1, **SETTINGS),
    )
    note(f"`batch` goes on after {RESUMED} mutations of {name}", f"{refused} refused, {RESUMED - refused} completed")


@pytest.mark.parametrize("name", ["evaluation.csv", "evaluation.json", "evaluation.parquet"])
@pytest.mark.limit(600)
def test_an_evaluation_that_goes_on(name: str, good: Path, tmp_path: Path, note: Note) -> None:
    evaluation, out = tiny_evaluation(good / "tiny.safetensors"), name.replace("json", "csv")
    refused = _resumed(
        good / name,
        [good / out, good / "evaluation.json"],
        tmp_path / "run",
        lambda folder: evaluate(evaluation, folder / out, processes=1, show_progress=False),
    )
    note(f"`evaluate` goes on after {RESUMED} mutations of {name}", f"{refused} refused, {RESUMED - refused} completed")


@pytest.mark.limit(600)
def test_a_training_that_goes_on(tmp_path: Path, note: Note) -> None:
    """Both of its checkpoints are broken."""
    train(tiny("budget.steps=4", "checkpoint.steps=2"), tmp_path / "good")
    refused = 0
    for seed in range(RESUMED):
        run = Path(shutil.copytree(tmp_path / "good", tmp_path / f"{seed}"))
        for checkpoint in (run / "checkpoints").iterdir():
            checkpoint.write_bytes(mutate(checkpoint.read_bytes(), seed))
        refused += _is_refused(lambda run=run: train(tiny("budget.steps=6", "checkpoint.steps=2"), run), str(run))  # type: ignore[misc]
    note(
        f"`train` goes on after {RESUMED} mutations of its checkpoints",
        f"{refused} refused, {RESUMED - refused} completed",
    )


def _resumed(broken: Path, files: list[Path], folder: Path, run: Callable[[Path], object]) -> int:
    """How many times a run refused to go on from files of which one is broken."""
    refused = 0
    for seed in range(RESUMED):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for file in files:
            shutil.copy(file, folder)
        (folder / broken.name).write_bytes(mutate(broken.read_bytes(), seed))
        refused += _is_refused(lambda: run(folder), str(folder))
    return refused


def _broken(content: bytes, count: int, shift: int) -> list[bytes]:
    """So many mutations, and the first part of the file in all lengths."""
    mutations = [mutate(content, shift + seed) for seed in range(count)]
    return mutations + [content[: len(content) * share // CUTS] for share in range(CUTS)]


def _is_refused(step: Callable[[], object], name: str) -> bool:
    try:
        step()
    except ValueError as error:
        assert name in str(error), error  # noqa: PT017
        return True
    return False
