"""Tables out of results files: the paper's eight columns with the paper's numbers below ours, and the rest."""

from __future__ import annotations

from collections.abc import Sequence

from p2plane.evaluation.results import Results
from p2plane.experiments.blocks import Cell, Table
from p2plane.experiments.paper import paper_row
from p2plane.experiments.rows import Row
from p2plane.work.record import record_path

METRICS = {
    "rotation_mse_deg2": "MSE(R)↓",
    "rotation_rmse_deg": "RMSE(R)↓",
    "rotation_mae_deg": "MAE(R)↓",
    "rotation_r2": "R²(R)↑",
    "translation_mse": "MSE(t)↓",
    "translation_rmse": "RMSE(t)↓",
    "translation_mae": "MAE(t)↓",
    "translation_r2": "R²(t)↑",
}
"""The paper's columns, in its order."""
REST = {
    "angle_mean_deg": "angle, mean (deg)",
    "angle_median_deg": "angle, median (deg)",
    "over_5_deg": "over 5 deg",
    "length_mean": "length, mean",
    "chamfer_mean": "Chamfer",
    "recall": "recall",
    "seconds_median": "s / pair",
    "pairs": "pairs",
}
"""What else is measured."""
SHARES = ("over_5_deg", "recall")
UNKNOWN = "not run"

Numbers = list[float] | None


def comparison(rows: Sequence[tuple[Row, Results | None]], paper_table: str, caption: str) -> Table:
    """The paper's columns of some rows; below each number the paper's, where it has one.

    The best of a column is marked, among ours and among the paper's; rows that saw fewer pairs than others are left out
    of that. An extension is bold where it beats its base.
    """
    ours: dict[str, Numbers] = {row.name: _numbers(results) for row, results in rows}
    papers = {row.name: paper_row(paper_table, row.name) for row, _ in rows}
    most = max((len(results) for _, results in rows if results), default=0)
    of_all = {row.name: ours[row.name] if results and len(results) == most else None for row, results in rows}
    best, papers_best = best_of(of_all), best_of(papers)
    lines = []
    for row, results in rows:
        bold, papers_bold = beats_base(row, of_all), beats_base(row, papers)
        cells = [label_cell(row, results, most)]
        for column in range(len(METRICS)):
            mine, theirs = ours[row.name], papers[row.name]
            cells.append(
                Cell(
                    short(mine[column]) if mine else UNKNOWN,
                    short(theirs[column]) if theirs else "",
                    best=best[column] == row.name,
                    below_best=papers_best[column] == row.name,
                    bold=bold[column],
                    below_bold=papers_bold[column],
                    source=results.path if results else None,
                )
            )
        lines.append(tuple(cells))
    return Table(("", *METRICS.values()), tuple(lines), caption)


def the_rest(rows: Sequence[tuple[Row, Results | None]], caption: str) -> Table:
    """What the paper does not tabulate, of the rows that were run."""
    lines = []
    for row, results in rows:
        if results is not None:
            values = [(name, results.summary[name]) for name in REST]
            texts = [f"{value:.1%}" if name in SHARES else short(value) for name, value in values]
            lines.append((label_cell(row, results, len(results)), *(Cell(text, source=results.path) for text in texts)))
    return Table(("", *REST.values()), tuple(lines), caption)


def best_of(columns: dict[str, Numbers]) -> list[str | None]:
    """For each metric the row with the best number; None where there is none."""
    known = {name: numbers for name, numbers in columns.items() if numbers}
    if not known:
        return [None] * len(METRICS)
    return [
        max(known, key=lambda name, i=i, sign=sign: sign * known[name][i])  # type: ignore[misc]
        for i, sign in enumerate(_signs())
    ]


def beats_base(row: Row, columns: dict[str, Numbers]) -> list[bool]:
    """For each metric whether an extension is better than its base."""
    mine, base = columns.get(row.name), columns.get(row.base or "")
    if not mine or not base:
        return [False] * len(METRICS)
    return [sign * (own - other) > 0 for sign, own, other in zip(_signs(), mine, base, strict=True)]


def label_cell(row: Row, results: Results | None, most: int) -> Cell:
    """The name of a row, with a link to what it came from."""
    if results is None:
        return Cell(row.label)
    fewer = f" (first {len(results)} pairs)" if len(results) < most else ""
    return Cell(row.label + fewer, source=record_path(results.path))


def short(value: float) -> str:
    """About four digits, without an exponent."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:.0f}" if value == int(value) else f"{value:.1f}"
    digits = 3
    size = abs(value)
    while size < 0.1 and digits < 6:
        size, digits = size * 10, digits + 1
    return f"{value:.0f}" if value == int(value) and abs(value) >= 2 else f"{value:.{digits}f}"


def _numbers(results: Results | None) -> Numbers:
    return [results.summary[name] for name in METRICS] if results else None


def _signs() -> list[int]:
    """One where more is better, minus one where less is."""
    return [1 if name.endswith("r2") else -1 for name in METRICS]
