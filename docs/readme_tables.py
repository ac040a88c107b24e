"""The README's tables of test sets, out of results/small: ``python docs/readme_tables.py`` writes them anew."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from p2plane.evaluation.results import FAILED_ABOVE_DEG, FAILED_ABOVE_LENGTH, Results
from p2plane.experiments.folder import ResultsFolder
from p2plane.experiments.paper import paper_row
from p2plane.experiments.perform import training_values
from p2plane.experiments.rows import BASES, EXACT_HEAD, EXTENSIONS, PUBLISHED_HEAD, Row
from p2plane.experiments.scale import SCALES
from p2plane.experiments.tables import METRICS, UNKNOWN, short

ROOT = Path(__file__).parents[1]
TEST_SETS = {
    "cpu": "ModelNet40-CPU",
    "cpu-unseen": "its unseen categories",
    "cpu-noisy": "with noise, no shared point, estimated normals",
    "cpu-noisy-so3": "the same, turned by any rotation",
    "icl-nuim": "ICL-NUIM",
}


def register_table(folder: ResultsFolder) -> list[str]:
    """What `register` gives on every test set, beside RANSAC and the paper's best row."""
    lines = [
        "| test set | pairs | RMSE(R) deg | MAE(R) deg | MAE(t) | over 5 degrees | confident | confident and wrong "
        "| RANSAC-10K: RMSE(R), MAE(R), over 5 degrees | the paper's RMSE(R), MAE(R) |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for data, name in TEST_SETS.items():
        results, ransac = folder.read(data, "register"), folder.read(data, "ransac-10k")
        if results is None:
            continue
        confident = results.columns["converged"] > 0
        counts = (_turned(results), confident, confident & results.failed)
        cells = [
            name,
            f"{len(results):,}",
            *_errors(results, data),
            *(f"{np.count_nonzero(each):,}" for each in counts),
        ]
        cells.append(f"{', '.join(_errors(ransac, data)[:2])}, {np.count_nonzero(_turned(ransac))}" if ransac else "")
        best = paper_row(folder.scale.data[data], "rpmnet-plane")
        cells.append(
            ", ".join(short(best[list(METRICS).index(f"rotation_{key}_deg")]) for key in ("rmse", "mae"))
            if best
            else ""
        )
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", _trust(folder)]


def heads_table(folder: ResultsFolder) -> list[str]:
    """Each network with its point head and its plane head, on every test set that it was trained for."""
    lines = [
        "| network | test set | steps | MAE(R) deg: point, plane | the paper's | MAE(t): point, plane | the paper's |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for base, extension in reversed([*zip(BASES, EXTENSIONS, strict=True)]):
        for data in ("cpu", "cpu-unseen", "icl-nuim"):
            pair = [folder.read(data, row.name) for row in (base, extension)]
            if not any(pair):
                continue
            steps = training_values(base, data, folder.scale)["budget"]["steps"]
            cells = [base.label, TEST_SETS[data], f"{steps:,}"]
            for metric in ("rotation_mae_deg", "translation_mae"):
                cells.append(", ".join(short(results.summary[metric]) if results else UNKNOWN for results in pair))
                cells.append(", ".join(short(_of_paper(folder, data, row, metric)) for row in (base, extension)))
            lines.append(f"| {' | '.join(cells)} |")
    return lines


KINDS_OF_HEADS = {
    "rpmnet-point": ("point, as published", "the mean of the partners"),
    PUBLISHED_HEAD.name: ("plane, as the paper has it", "one partner drawn at random, eigenvector, penalty"),
    EXACT_HEAD.name: ("plane, the gradient exact", "one partner drawn at random, its normal, exact"),
    "rpmnet-plane": ("plane, ours", "the mean of the partners, the averaged normal tensor, exact"),
}


def kinds_table(folder: ResultsFolder) -> list[str]:
    """RPMNet with each kind of plane head, with true and with estimated normals."""
    header = ("RPMNet's head", "match, normals, gradient", TEST_SETS["cpu"], TEST_SETS["cpu-noisy"])
    lines = [f"| {' | '.join(header)} |", f"|{' --- |' * len(header)}"]
    for name, about in KINDS_OF_HEADS.items():
        found = [folder.read(data, name) for data in ("cpu", "cpu-noisy")]
        errors = [short(results.summary["rotation_mae_deg"]) if results else UNKNOWN for results in found]
        lines.append(f"| {' | '.join((*about, *errors))} |")
    return lines


TABLES = {"register": register_table, "heads": heads_table, "kinds of plane heads": kinds_table}


def with_tables(text: str, folder: ResultsFolder) -> str:
    """The README with its tables anew."""
    for name, table in TABLES.items():
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, found, rest = text.partition(start)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"the README must have the marks {start.strip()} and {end}")
        text = before + start + "\n".join(table(folder)) + "\n" + end + after
    return text


def _turned(results: Results) -> np.ndarray:
    return results.columns["angle_deg"] > FAILED_ABOVE_DEG


def _trust(folder: ResultsFolder) -> str:
    """How far `register` can be believed, over all test sets."""
    found = [results for data in TEST_SETS if (results := folder.read(data, "register"))]
    wrong = np.concatenate([results.failed for results in found])
    confident = np.concatenate([results.columns["converged"] > 0 for results in found])
    misled, said, right = (np.count_nonzero(each) for each in (confident & wrong, confident, ~wrong))
    return (
        f"Over all of them, {misled} of {said:,} confident answers are wrong ({misled / said:.2%}: off by more than "
        f"{FAILED_ABOVE_DEG:g} degrees or {FAILED_ABOVE_LENGTH:g}, 5 % of the size), "
        f"and {np.mean(confident[~wrong]):.1%} of {right:,} right answers are confident."
    )


def _errors(results: Results, data: str) -> list[str]:
    """RMSE(R), MAE(R), MAE(t); of the whole angle where Euler angles mean little."""
    summary = results.summary
    if data.endswith("so3"):
        return [f"{short(summary[f'angle_{key}_deg'])} (angle)" for key in ("rms", "mean")] + [
            short(summary["translation_mae"])
        ]
    return [short(summary[key]) for key in ("rotation_rmse_deg", "rotation_mae_deg", "translation_mae")]


def _of_paper(folder: ResultsFolder, data: str, row: Row, metric: str) -> float:
    numbers = paper_row(folder.scale.data[data], row.name)
    assert numbers is not None
    return numbers[list(METRICS).index(metric)]


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(with_tables(readme.read_text(), ResultsFolder(ROOT / "results", SCALES["small"])))
