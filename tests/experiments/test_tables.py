"""Tables mark the best, embolden what beats its base, and say what was not run; figures choose pairs by rule."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from p2plane.cli import reproduce
from p2plane.experiments.catalogue import EXPERIMENTS
from p2plane.experiments.comparison import MODELNET40_CPU
from p2plane.experiments.folder import ResultsFolder
from p2plane.experiments.galleries import better_pairs, worse_pairs
from p2plane.experiments.hard import HARD
from p2plane.experiments.page import make_page
from p2plane.experiments.perform import Options, head_settings, perform, training_values
from p2plane.experiments.pictures import pairs_at
from p2plane.experiments.rows import (
    BASES,
    BY_NAME,
    EXTENSIONS,
    NETWORK,
    PARTS,
    PLANES_ALONE,
    REGISTER,
    ROWS,
    RRI,
    TESSERA,
    TESSERA_UNSEEN,
)
from p2plane.experiments.scale import SCALES
from p2plane.experiments.scatter import slope_through_origin
from p2plane.experiments.tables import METRICS, UNKNOWN, comparison, short
from p2plane.training.config import settings_from
from p2plane.training.files import with_changes
from p2plane.work.record import read_record, write_record
from tests.experiments.made_up import write_made_up

MAE = 1 + list(METRICS).index("rotation_mae_deg")

TABLE_1 = (*ROWS, PLANES_ALONE, RRI, TESSERA, REGISTER)


@pytest.fixture
def folder(tmp_path: Path) -> ResultsFolder:
    return ResultsFolder(tmp_path, SCALES["small"])


def rows_of(folder: ResultsFolder) -> dict:
    table = MODELNET40_CPU.render(folder)[0]
    return {line[0].text: line for line in table.rows}  # type: ignore[union-attr]


def test_the_best_is_marked_and_an_extension_is_bold_where_it_beats_its_base(folder: ResultsFolder) -> None:
    for name, off in (("rpmnet-point", 2.0), ("rpmnet-plane", 1.0), ("prnet-point", 3.0), ("prnet-plane", 4.0)):
        write_made_up(folder.of("cpu") / f"{name}.csv", [off, -off, off])
    rows = rows_of(folder)
    marks = {name: (rows[name][MAE].best, rows[name][MAE].bold) for name in rows if rows[name][MAE].text != UNKNOWN}
    assert marks == {
        "RPMNet": (False, False),
        "RPMNet + plane": (True, True),
        "PRNet": (False, False),
        "PRNet + plane": (False, False),
    }
    assert rows["RPMNet + plane"][MAE].below == "0.600"
    assert rows["RPMNet + plane"][MAE].below_best
    assert rows["RPMNet + plane"][MAE].source == folder.of("cpu") / "rpmnet-plane.csv"


def test_rows_that_were_not_run_say_so_and_keep_the_papers_numbers(folder: ResultsFolder) -> None:
    write_made_up(folder.of("cpu") / "icp.csv", [5.0, 6.0])
    rows = rows_of(folder)
    assert list(rows) == [row.label for row in TABLE_1]
    assert {cell.text for cell in rows["DeepGMR"][1:]} == {UNKNOWN}
    assert rows["DeepGMR"][MAE].below == "8.485"


def test_an_evaluation_that_was_not_finished_does_not_count(folder: ResultsFolder) -> None:
    results = write_made_up(folder.of("cpu") / "icp.csv", [5.0, 6.0])
    (results.path.with_suffix(".json")).write_text('{"settings": {}}')
    assert folder.read("cpu", "icp") is None


def test_fewer_pairs_are_told_and_are_not_the_best(folder: ResultsFolder) -> None:
    write_made_up(folder.of("cpu") / "icp.csv", [5.0, 6.0, 7.0])
    write_made_up(folder.of("cpu") / "go-icp.csv", [0.1])
    rows = rows_of(folder)
    assert not rows["Go-ICP (first 1 pairs)"][MAE].best
    assert rows["ICP"][MAE].best


def test_other_results_of_the_folder_have_rows_too(folder: ResultsFolder) -> None:
    write_made_up(folder.of("cpu") / "our-best.csv", [0.5, 0.6])
    write_made_up(folder.of("cpu") / "rpmnet-point-tested-with-plane.csv", [0.5, 0.6])
    rows = rows_of(folder)
    assert "our-best" in rows
    assert len(rows) == len(TABLE_1) + 1


def test_what_register_said_of_its_answers_is_counted(folder: ResultsFolder) -> None:
    write_made_up(folder.of("cpu-noisy") / "register.csv", [0.5, 1.0, 20.0, 30.0], converged=[1, 0, 1, 0])
    table = HARD.render(folder)[-1]
    (line,) = [[cell.text for cell in line] for line in table.rows]  # type: ignore[union-attr]
    assert line == ["modelnet40-cpu-noisy", "4", "2", "2", "1", "1 of 2, 50.0%"]


def test_a_pose_fails_by_its_angle_or_by_its_length(tmp_path: Path) -> None:
    results = write_made_up(tmp_path / "results.csv", [1.0, 1.0, 6.0])
    results.columns["length"] = np.array([0.09, 0.11, 0.0])
    assert results.failed.tolist() == [False, True, True]


def test_a_table_without_any_results_has_no_best() -> None:
    table = comparison([(row, None) for row in ROWS], "", "")
    assert not any(cell.best or cell.bold for line in table.rows for cell in line)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1580.827, "1580.8"), (3.655338, "3.655"), (0.000971, "0.000971"), (0.010273, "0.0103"), (30, "30")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert short(value) == text


def test_the_line_through_the_origin_is_that_of_least_squares() -> None:
    x, y = np.array([1.0, 2.0, 4.0]), np.array([0.4, 1.2, 1.9])
    assert slope_through_origin(x, y) == pytest.approx(np.linalg.lstsq(x[:, None], y, rcond=None)[0][0])


def test_galleries_choose_by_rule() -> None:
    point = np.array([0.5, 0.1, 0.2, 0.3])
    duels = [
        (BASES[i], point, point + change)
        for i, change in enumerate(([-0.4, 1, 1, 0.2], [1, 1, 0.1, 0.3], [1, -1, 1, 0.1]))
    ]
    assert better_pairs(duels[0]) == [0]
    assert worse_pairs(duels) == [2, 3]  # pairs 0 and 1 were won by one of the three; 2 lost more than 3
    assert worse_pairs([]) == []


def test_pictures_show_pairs_at_fixed_places_of_the_order(tmp_path: Path) -> None:
    results = write_made_up(tmp_path / "some.csv", [5.0, 1.0, 4.0, 2.0, 3.0])
    assert pairs_at(results, (0.0, 0.5, 1.0)) == [1, 4, 0]
    assert pairs_at(results, (0.5, 0.51)) == [4]


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_experiment_says_what_was_not_run(name: str, folder: ResultsFolder) -> None:
    assert EXPERIMENTS[name].render(folder)


@pytest.mark.parametrize("scale", ["full", "small", "smoke"])
@pytest.mark.parametrize("data", ["cpu", "cpu-unseen", "icl-nuim"])
def test_every_network_has_a_config_at_every_scale(scale: str, data: str) -> None:
    for row in (row for row in BY_NAME.values() if row.kind == NETWORK and row not in (*PARTS, TESSERA_UNSEEN)):
        settings = settings_from(training_values(row, data, SCALES[scale]))
        assert settings.data[0].half == ("first" if data == "cpu-unseen" else "both")
        assert settings.data[0].name == (
            "synthetic" if scale == "smoke" else "icl-nuim" if data == "icl-nuim" else "modelnet40"
        )
        head = getattr(settings.model.config, "head", None)
        if head is not None and row.name not in ("dcp-v1",):
            assert head.head == ("plane" if "-plane" in row.name else "point")


@pytest.mark.parametrize("scale", ["full", "small", "smoke"])
def test_what_is_tested_with_another_head_has_all_that_the_extension_has_for_it(scale: str) -> None:
    for base, extension in zip(BASES, EXTENSIONS, strict=True):
        own, others = (training_values(row, "cpu", SCALES[scale]) for row in (base, extension))
        changes = [f"model.{change}" for change in head_settings(extension, "cpu", SCALES[scale])]
        tested, trained = (settings_from(each).model.config for each in (with_changes(own, changes), others))
        assert tested.head == trained.head != settings_from(own).model.config.head
        assert getattr(tested, "plane_match", "") == getattr(trained, "plane_match", "")


@pytest.mark.parametrize("scale", ["full", "small", "smoke"])
def test_tessera_for_unseen_categories_is_trained_on_the_others_alone(scale: str) -> None:
    settings = settings_from(training_values(TESSERA_UNSEEN, "cpu-unseen", SCALES[scale]))
    assert {each.half for each in settings.data} == {"first"}
    assert {each.name for each in settings.data} == {"synthetic" if scale == "smoke" else "modelnet40"}


@pytest.mark.parametrize("scale", ["full", "small", "smoke"])
def test_parts_of_tessera_differ_in_one_setting_each(scale: str) -> None:
    whole, *others = (settings_from(training_values(row, "cpu", SCALES[scale])) for row in PARTS)
    assert {each.name for each in whole.data} == {"synthetic"}
    assert whole.model.config.head.head == "plane"
    changed = [
        (
            other.model.config.head.head,
            other.model.config.blocks,
            other.model.config.coordinates,
            other.loss.options.get("match_weight", 1),
        )
        for other in others
    ]
    blocks = whole.model.config.blocks
    assert changed == [
        ("point", blocks, False, 1),
        ("plane", 0, False, 1),
        ("plane", blocks, True, 1),
        ("plane", blocks, False, 0),
    ]
    assert all(other.budget == whole.budget for other in others)


def test_what_cannot_be_run_is_told_and_the_rest_is_run(folder: ResultsFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    def complete(run, folder, options) -> None:  # type: ignore[no-untyped-def]
        ran.append(run.row.name)
        if run.row.name == "fgr":
            raise ImportError("Open3D is not here")

    monkeypatch.setattr("p2plane.experiments.perform._complete", complete)
    problems = perform([MODELNET40_CPU], folder, Options(say=lambda _: None))
    assert problems == ["fgr on modelnet40-cpu: Open3D is not here"]
    assert ran == [row.name for row in TABLE_1]


def test_the_heads_of_a_network_have_equal_budgets_and_other_test_sets_half_of_them() -> None:
    small = SCALES["small"]
    for base, extension in zip(BASES, EXTENSIONS, strict=True):
        for data, share in (("cpu", 1), ("cpu-unseen", 2), ("icl-nuim", 2)):
            steps = [share * settings_from(training_values(row, data, small)).budget.steps for row in (base, extension)]
            assert steps == 2 * [settings_from(training_values(base, "cpu", small)).budget.steps]


def test_an_interrupted_training_ends_the_whole_run(folder: ResultsFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def interrupted(settings, path) -> SimpleNamespace:  # type: ignore[no-untyped-def]
        started.append(path.name)
        return SimpleNamespace(finished=False)

    monkeypatch.setattr("p2plane.training.run.train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        perform([EXPERIMENTS["heads"]], folder, Options(say=lambda _: None))
    assert started == ["rpmnet-point"]


def test_the_help_names_every_experiment() -> None:
    assert [name for name in EXPERIMENTS if name not in reproduce.Name.help] == []


def test_the_page_names_settings_as_they_were_when_a_row_was_run(folder: ResultsFolder) -> None:
    path = write_made_up(folder.of("cpu") / "go-icp.csv", [1.0]).path
    record = read_record(path)
    record["settings"]["settings"] = {"time_limit": 7, "cells": 9, "max_points": 11, "trim": 0.0}
    write_record(path, record)
    runs = make_page([MODELNET40_CPU], folder, folder.path, "page").settings[0]
    assert "time_limit=7, cells=9, max_points=11" in [cell.text for cell in runs.rows[0]]  # type: ignore[union-attr]


def test_results_that_are_there_need_no_weights(folder: ResultsFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rpmnet-point", "rpmnet-plane"):
        write_made_up(folder.of("cpu") / f"{name}.csv", [1.0])
    monkeypatch.setattr("p2plane.training.run.train", lambda *_: pytest.fail("it was trained again"))
    rows = ("rpmnet-point", "rpmnet-plane")
    assert perform([MODELNET40_CPU], folder, Options(rows=rows, say=lambda _: None)) == []
