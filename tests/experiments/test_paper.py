"""The paper's numbers, as printed, and that they hang together."""

from __future__ import annotations

import math

import pytest

from p2plane.experiments.paper import paper, paper_row
from p2plane.experiments.rows import BY_NAME, ROWS
from p2plane.experiments.tables import METRICS, beats_base, best_of

TABLES = ("modelnet40-cpu", "modelnet40-cpu-unseen", "icl-nuim")


@pytest.mark.parametrize(
    ("table", "row", "column", "value"),
    [
        ("modelnet40-cpu", "icp", "rotation_mse_deg2", 1580.827637),
        ("modelnet40-cpu", "rpmnet-plane", "rotation_mae_deg", 0.599530),
        ("modelnet40-cpu", "rpmnet-point", "translation_rmse", 0.055891),
        ("modelnet40-cpu-unseen", "prnet-plane", "rotation_r2", 0.832150),
        ("modelnet40-cpu-unseen", "ransac-10k", "translation_mae", 0.017702),
        ("icl-nuim", "pointnetlk", "translation_r2", -2.454140),
        ("icl-nuim", "dcp-v2-plane", "translation_mse", 0.022302),
        ("plane-for-testing", "prnet-point", "rotation_mae_deg", 3.431526),
    ],
)
def test_numbers_are_those_printed(table: str, row: str, column: str, value: float) -> None:
    numbers = paper_row(table, row)
    assert numbers is not None
    assert numbers[list(METRICS).index(column)] == value


@pytest.mark.parametrize("table", TABLES)
def test_every_row_is_there_and_its_rmse_is_the_root_of_its_mse(table: str) -> None:
    assert list(paper()[table]) == [row.name for row in ROWS]
    for numbers in paper()[table].values():
        assert numbers[1] == pytest.approx(math.sqrt(numbers[0]), rel=1e-5)
        assert numbers[5] == pytest.approx(math.sqrt(numbers[4]), rel=1e-3)  # six digits behind the point are few here
        assert numbers[2] <= numbers[1]
        assert numbers[6] <= numbers[5]


def test_extensions_are_bold_where_the_paper_prints_them_so() -> None:
    """All of table 1, and in table 3 of Ours (DCP-v2) MAE(t) but not the other translation columns."""
    first, third = paper()["modelnet40-cpu"], paper()["icl-nuim"]
    assert all(all(beats_base(row, first)) for row in ROWS if row.base)
    assert beats_base(BY_NAME["dcp-v2-plane"], third) == [True] * 4 + [False, False, True, False]


def test_the_best_of_table_2_is_not_always_the_marked_one() -> None:
    """The paper marks all of Ours (RPMNet); RANSAC-10K has the lower mean absolute errors."""
    best = dict(zip(METRICS, best_of(paper()["modelnet40-cpu-unseen"]), strict=True))
    assert best["rotation_mse_deg2"] == "rpmnet-plane"
    assert (best["rotation_mae_deg"], best["translation_mae"]) == ("ransac-10k", "ransac-10k")
