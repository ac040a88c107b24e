"""An evaluation's table does not depend on how it was run: killed, cut, continued, or over several processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from p2plane.evaluation import metrics
from p2plane.evaluation.results import Results, make_compact, read_results
from p2plane.evaluation.rows import COLUMNS, measured_row
from p2plane.evaluation.run import evaluate
from p2plane.evaluation.testsets import TEST_SETS, PairSource, open_test_set
from p2plane.evaluation.text import described
from p2plane.evaluation.worker import Evaluation, Worker
from p2plane.methods import METHODS
from p2plane.work.record import agreed_record, write_record
from tests.evaluation.tiny import tiny_evaluation, tiny_weights


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_weights(tmp_path_factory.mktemp("weights"))


@pytest.fixture(scope="module")
def undisturbed(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    return evaluate(tiny_evaluation(weights), tmp_path_factory.mktemp("results") / "tiny.csv", processes=1)


def assert_same_table(results: Results, expected: Results) -> None:
    for name in COLUMNS:
        if name != "seconds":
            np.testing.assert_array_equal(results.columns[name], expected.columns[name], err_msg=name)


def test_there_is_a_row_for_every_pair(undisturbed: Results) -> None:
    assert undisturbed.columns["index"].tolist() == list(range(13))
    pairs = open_test_set("synthetic-cpu", points=64)
    torch.testing.assert_close(undisturbed.T_true[5], pairs[5].T_target_source.double(), rtol=0, atol=1e-8)


def test_the_table_is_that_of_the_metrics(undisturbed: Results, weights: Path) -> None:
    worker = Worker.start(tiny_evaluation(weights))
    pairs = [worker.pairs[i] for i in range(13)]
    T, T_true = undisturbed.T_estimate, undisturbed.T_true
    source = torch.stack([pair.source for pair in pairs]).double()
    target, whole = (torch.stack([getattr(pair, name) for pair in pairs]).double() for name in ("target", "whole"))
    expected = metrics.euler_summary(T, T_true) | metrics.isotropic_summary(T, T_true)
    expected |= metrics.recall_summary(T, T_true, source)
    expected["chamfer_mean"] = float(metrics.modified_chamfer(T, T_true, source, target, whole).mean())
    assert {name: undisturbed.summary[name] for name in expected} == pytest.approx(expected, rel=1e-6)
    assert f"{expected['rotation_mae_deg']:.6f}" in described(undisturbed)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_with_the_settings_of_any_method_goes_on(method: str, tmp_path: Path) -> None:
    settings = Worker.start(Evaluation(method, "synthetic-cpu")).settings()
    write_record(tmp_path / "rows.csv", {"settings": settings})
    assert agreed_record(tmp_path / "rows.csv", settings)["settings"]["method"] == method


@pytest.mark.parametrize("share", [0.01, 0.3, 0.31, 0.72, 0.9999])
def test_a_file_cut_anywhere_is_completed(undisturbed: Results, weights: Path, tmp_path: Path, share: float) -> None:
    out = tmp_path / "tiny.csv"
    evaluate(tiny_evaluation(weights), out, processes=1)
    content = out.read_bytes()
    out.write_bytes(content[: int(share * len(content))])
    assert_same_table(evaluate(tiny_evaluation(weights), out, processes=1), undisturbed)
    assert len(out.read_text().splitlines()) == 14


def test_what_is_complete_is_not_run_again(
    undisturbed: Results, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Worker, "rows", lambda *_: pytest.fail("a pair was run again"))
    before = undisturbed.path.read_bytes()
    assert_same_table(evaluate(tiny_evaluation(weights), undisturbed.path, processes=1), undisturbed)
    assert undisturbed.path.read_bytes() == before


def test_killed_over_two_processes_it_goes_on(weights: Path, tmp_path: Path) -> None:
    """SIGKILL of the parent alone: its children end too, and the next start loses nothing and repeats nothing."""
    out, evaluation = tmp_path / "killed.csv", tiny_evaluation(weights, pairs=200)
    arguments = ["evaluate", "--method", str(weights), "--data", "synthetic-cpu", "--pairs", "200", "--points", "64"]
    arguments += ["--batch", "3", "--processes", "2", "--out", str(out)]
    command = [sys.executable, "-c", f"from p2plane.cli import main; raise SystemExit(main({arguments}))"]
    process = subprocess.Popen(command, start_new_session=True)
    wait_until(lambda: out.exists() and out.read_text().count("\n") > 10)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not group_is_alive(process.pid))
    done = out.read_text().count("\n") - 1
    assert done < 200
    results = evaluate(evaluation, out, processes=1)
    assert results.columns["index"].tolist() == list(range(200))
    assert_same_table(results, evaluate(evaluation, tmp_path / "undisturbed.csv", processes=1))


def wait_until(condition: object, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def group_is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_parquet_holds_the_same_and_goes_on_too(undisturbed: Results, weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "tiny.parquet"
    evaluate(tiny_evaluation(weights, pairs=7), out, processes=1)
    results = evaluate(tiny_evaluation(weights), out, processes=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny.json", "tiny.parquet"]
    assert results.columns["index"].tolist() == list(range(13))
    assert {**results.summary, "seconds_mean": 0, "seconds_median": 0} == pytest.approx(
        {**undisturbed.summary, "seconds_mean": 0, "seconds_median": 0}, rel=1e-5
    )


def test_a_compact_file_holds_the_same(undisturbed: Results, weights: Path, tmp_path: Path) -> None:
    """And its evaluation can go on."""
    evaluate(tiny_evaluation(weights, pairs=7), tmp_path / "tiny.csv", processes=1)
    path = make_compact(tmp_path / "tiny.csv")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["tiny.json", "tiny.parquet", "truth.parquet"]
    for results, count in ((read_results(path), 7), (evaluate(tiny_evaluation(weights), path, processes=1), 13)):
        for name in COLUMNS[1:-1]:
            if name != "seconds":
                np.testing.assert_allclose(
                    results.columns[name], undisturbed.columns[name][:count], rtol=1e-5, atol=1e-3, err_msg=name
                )


def test_a_compact_file_without_the_truth_is_refused(undisturbed: Results, tmp_path: Path) -> None:
    for path in (undisturbed.path, undisturbed.path.with_suffix(".json")):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    path = make_compact(tmp_path / undisturbed.path.name)
    (tmp_path / "truth.parquet").unlink()
    with pytest.raises(ValueError, match="true poses"):
        read_results(path)


def test_more_pairs_give_the_table_of_a_run_of_so_many(undisturbed: Results, weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "tiny.csv"
    assert len(evaluate(tiny_evaluation(weights, pairs=5), out, processes=1)) == 5
    assert_same_table(evaluate(tiny_evaluation(weights), out, processes=1), undisturbed)


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"seed": 1}, "seed"), ({"points": 80}, "data"), ({"batch": 2}, "batch"), ({"pairs": 4}, "pairs")],
)
def test_other_settings_are_refused(undisturbed: Results, weights: Path, changes: dict, name: str) -> None:
    before = undisturbed.path.read_bytes()
    with pytest.raises(ValueError, match=name):
        evaluate(tiny_evaluation(weights, **changes), undisturbed.path, processes=1)
    assert undisturbed.path.read_bytes() == before


def test_other_weights_are_refused(undisturbed: Results, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="weights_sha256"):
        evaluate(tiny_evaluation(tiny_weights(tmp_path, seed=1)), undisturbed.path, processes=1)


@pytest.mark.parametrize("change", [(b"index", b"place"), (b"0.", b"O."), (b"\n", b"\n\xff")])
def test_a_broken_file_is_refused_by_name(undisturbed: Results, tmp_path: Path, change: tuple[bytes, bytes]) -> None:
    (tmp_path / "broken.csv").write_bytes(undisturbed.path.read_bytes().replace(*change))
    with pytest.raises(ValueError, match=r"broken\.csv must have the columns of an evaluation"):
        read_results(tmp_path / "broken.csv")


def test_a_file_without_its_record_is_refused(undisturbed: Results, weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "orphan.csv"
    out.write_bytes(undisturbed.path.read_bytes())
    with pytest.raises(ValueError, match=r"orphan\.json must be there"):
        evaluate(tiny_evaluation(weights), out, processes=1)


def test_a_head_can_be_changed_and_the_record_says_so(undisturbed: Results, weights: Path, tmp_path: Path) -> None:
    changed = tiny_evaluation(weights, changes=("head.head=plane",))
    results = evaluate(changed, tmp_path / "plane.csv", processes=1)
    assert results.record["settings"]["settings"]["head"]["head"] == "plane"
    assert not np.allclose(results.T_estimate, undisturbed.T_estimate)


def test_a_pose_that_is_not_finite_is_a_flagged_identity() -> None:
    pair = open_test_set("synthetic-cpu", points=64)[0]
    row = measured_row(0, pair, torch.full((4, 4), float("nan")), True, 0.1)
    assert (row["flags"], row["converged"], row["T_00"], row["T_01"]) == ("not-finite", 0, 1.0, 0.0)
    assert all(np.isfinite(value) for name, value in row.items() if name != "flags")


def test_few_shapes_come_again_and_are_moved_in_other_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    count = len(open_test_set("synthetic"))
    monkeypatch.setitem(TEST_SETS, "synthetic", PairSource("synthetic", "modelnet40", least_pairs=count + 2))
    pairs = open_test_set("synthetic", points=64)
    assert len(pairs) == count + 2
    first, again = pairs[1], pairs[count + 1]
    assert pairs.shapes[1].name == pairs.shapes[count + 1].name
    assert (first.T_target_source - again.T_target_source).abs().max() > 1e-3


def test_unseen_categories_are_the_second_half() -> None:
    names = {open_test_set("synthetic-cpu-unseen").shapes[i].name for i in range(0, 500, 25)}
    assert len(names) == 20
    assert min(names) == "laptop"


@pytest.mark.parametrize("name", [name for name, source in TEST_SETS.items() if source.shapes == "synthetic"])
def test_every_built_in_set_has_pairs(name: str) -> None:
    pair = open_test_set(name, points=64)[1]
    assert pair.source.shape == pair.target.shape == (48, 3)
    assert pair.whole is not None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": "nonsense"}, "data must be one of"),
        ({"pairs": 0}, "pairs must be at least 1"),
        ({"points": 2}, "points must be at least 8"),
    ],
)
def test_bad_settings_are_named(changes: dict, message: str) -> None:
    settings = {"method": "icp", "data": "synthetic"} | changes
    with pytest.raises(ValueError, match=message):
        Evaluation(**settings)


def test_an_unknown_ending_is_named(weights: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must end with"):
        evaluate(tiny_evaluation(weights), tmp_path / "out.txt")


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="columns of an evaluation"):
        read_results(tmp_path / "other.csv")
