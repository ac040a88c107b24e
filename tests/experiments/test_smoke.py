"""`p2plane reproduce all --scale smoke`: every table and figure, and the same page from the results files alone."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from p2plane.cli import main
from p2plane.experiments.catalogue import EXPERIMENTS

FIGURES = {"teaser", "results", "differentiation", "scatter", "cdf-synthetic-cpu", "cdf-synthetic-icl-nuim"}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("reproduced") / "results"
    assert main(["reproduce", "all", "--scale", "smoke", "--results", str(root), "--processes", "1"]) == 0
    return root


def test_the_page_has_every_table_and_figure(results: Path) -> None:
    page, html = ((results / "smoke" / f"results.{kind}").read_text() for kind in ("md", "html"))
    for experiment in EXPERIMENTS.values():
        assert f"## {experiment.title} ({experiment.reference})" in page
        assert f'id="{experiment.name}"' in html
    assert {path.stem for path in (results / "smoke" / "results").glob("*.png")} >= FIGURES
    assert any("better" in path.stem or "worse" in path.stem for path in (results / "smoke" / "results").glob("*.png"))
    assert "not run" not in page.lower()
    assert "not measured" not in page.lower()
    assert html.count("data:image/png") == page.count("![")


def test_every_number_links_to_a_file_that_is_there(results: Path) -> None:
    page = (results / "smoke" / "results.md").read_text()
    links = set(re.findall(r"\]\(([^)]+)\)", page))
    assert len(links) > 50
    assert [link for link in links if not (results / "smoke" / link).is_file()] == []


def test_the_same_page_comes_from_the_results_files_alone(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither weights nor runs nor data are there, and nothing may be trained, evaluated or opened."""
    kept = tmp_path / "kept"
    shutil.copytree(results, kept, ignore=shutil.ignore_patterns("runs", "*.safetensors", "results*"))
    for name in (
        "p2plane.training.run.train",
        "p2plane.evaluation.run.evaluate",
        "p2plane.experiments.folder.open_test_set",
    ):
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("something was run"))
    assert main(["reproduce", "all", "--scale", "smoke", "--from", str(kept)]) == 0
    first, second = (without_date((root / "smoke" / "results.md").read_text()) for root in (results, kept))
    assert first == second
    assert (kept / "smoke" / "results" / "teaser.png").read_bytes() == (
        results / "smoke" / "results" / "teaser.png"
    ).read_bytes()


def without_date(page: str) -> str:
    return re.sub(r"This page was made .*", "", page)


def test_what_is_there_is_not_run_again(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2plane.evaluation.worker.Worker.rows", lambda *_: pytest.fail("it was run again"))
    assert main(["reproduce", "cdfs", "--scale", "smoke", "--results", str(results), "--processes", "1"]) == 0


def test_bad_names_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "nonsense", "--scale", "smoke"]) == 2
    assert main(["reproduce", "all", "--scale", "huge"]) == 2
    assert main(["reproduce", "all", "--from", str(tmp_path)]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 3
    assert "modelnet40-cpu" in errors[0]
