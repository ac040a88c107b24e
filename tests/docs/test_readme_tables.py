"""The README's numbers are those of the results files in this repository."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from p2plane.experiments.folder import ResultsFolder
from p2plane.experiments.scale import SCALES

ROOT = Path(__file__).parents[2]


def test_the_tables_are_made_of_the_results_files() -> None:
    pytest.importorskip("pyarrow", reason="compact results files need pip install 'p2plane[parquet]'")
    script = runpy.run_path(str(ROOT / "docs" / "readme_tables.py"))
    text = (ROOT / "README.md").read_text()
    assert script["with_tables"](text, ResultsFolder(ROOT / "results", SCALES["small"])) == text


def test_a_mark_that_is_missing_is_told() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "readme_tables.py"))
    with pytest.raises(ValueError, match="register"):
        script["with_tables"]("no marks", ResultsFolder(ROOT / "results", SCALES["small"]))
