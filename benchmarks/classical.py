"""The paper's four classical rows, beside the paper's numbers: ``python benchmarks/classical.py [--pairs 200]``.

The first test pairs of ModelNet40-CPU and of ICL-NUIM, in the paper's eight columns. A killed run goes on where it
stopped. What may differ from the paper, which gives no settings of these methods:

- ICP starts from the identity and takes the nearest points at any distance. The paper's is worse than leaving the
  clouds alone (see the row "identity"), as DCP's was, whose author started it from random poses.
- Go-ICP runs with the settings it was published with, without trimming, and with a limit of time for each pair, after
  which the best pose so far counts. The clouds are brought into the unit ball first, as it expects; the paper's
  translations are farther off than if the clouds had been left alone.
- FGR and RANSAC have lengths in units of the spacing of the points. "fgr, other lengths" has those that RPMNet's author
  gives for single shapes in the unit sphere, FPFH radius 0.3 and distance 0.01. Both settings do far better than the
  paper's rows; what the paper's were is not known.
- RANSAC-10K is refined by plain point-to-plane ICP, as in the paper; "ransac, robust" by ICP with a Tukey kernel.
- The ICL-NUIM frames are fewer (41) and not DeepGMR's own.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from p2plane.evaluation.results import Results
from p2plane.evaluation.run import evaluate
from p2plane.evaluation.worker import Evaluation
from p2plane.experiments.paper import paper_row

DATA = ("modelnet40-cpu", "icl-nuim")
COLUMNS = (
    ("rotation_mse_deg2", "MSE(R)", 9, 2),
    ("rotation_rmse_deg", "RMSE(R)", 8, 2),
    ("rotation_mae_deg", "MAE(R)", 8, 2),
    ("rotation_r2", "R2(R)", 8, 3),
    ("translation_mse", "MSE(t)", 9, 5),
    ("translation_rmse", "RMSE(t)", 9, 4),
    ("translation_mae", "MAE(t)", 9, 4),
    ("translation_r2", "R2(t)", 8, 3),
)
OTHER_LENGTHS = ("spacing=1.0", "feature_radius=0.3", "max_distance=0.01")


@dataclass(frozen=True)
class Line:
    """A method with its settings, and the paper's row that it stands beside."""

    method: str
    changes: tuple[str, ...] = ()
    paper: str | None = None
    most_pairs: int | None = None


def lines(seconds: float) -> dict[str, Line]:
    """All lines by name; Go-ICP stops after so many seconds for a pair."""
    return {
        "identity": Line("identity"),
        "icp": Line("icp", paper="icp"),
        "go-icp": Line("go-icp", (f"time_limit={seconds}",), "go-icp", most_pairs=30),
        "fgr": Line("fgr", paper="fgr"),
        "fgr, other lengths": Line("fgr", OTHER_LENGTHS, "fgr"),
        "ransac": Line("ransac", ("refinement=plain",), "ransac-10k"),
        "ransac, robust": Line("ransac", paper="ransac-10k"),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison with the given arguments, or those of the shell; the exit code."""
    parser = argparse.ArgumentParser(description="The classical rows of the paper's tables.")
    parser.add_argument("--pairs", type=int, default=200, help="the first so many; Go-ICP 30 at most")
    parser.add_argument("--methods", nargs="+", choices=tuple(lines(1.0)), help="all where it is not given")
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    parser.add_argument("--seconds", type=float, default=30.0, help="for each pair of Go-ICP")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "classical")
    options = parser.parse_args(arguments)
    for data in options.data:
        heading = "".join(f"{title:>{width}s}" for _, title, width, _ in COLUMNS)
        print(f"\n{data:22s}{heading}   pairs  seconds a pair", flush=True)
        for name, line in lines(options.seconds).items():
            if options.methods is None or name in options.methods:
                results = run(name, line, data, options)
                print(f"{name:22s}{ours(results)}{how_it_went(results)}", flush=True)
                print(f"{'':14s}{'paper':8s}{paper(data, line)}", flush=True)
    return 0


def run(name: str, line: Line, data: str, options: argparse.Namespace) -> Results:
    pairs = min(options.pairs, line.most_pairs or options.pairs)
    file = f"{name.replace(', ', '-')}-{pairs}.csv"
    evaluation = Evaluation(line.method, data, line.changes, pairs)
    return evaluate(evaluation, options.out / data / file, processes=options.processes)


def ours(results: Results) -> str:
    summary = results.summary
    return "".join(f"{summary[key]:{width}.{digits}f}" for key, _, width, digits in COLUMNS)


def how_it_went(results: Results) -> str:
    seconds = [float(each) for each in results.columns["seconds"]]
    return f"{len(seconds):8d}{sum(seconds) / len(seconds):9.2f}"


def paper(data: str, line: Line) -> str:
    numbers = paper_row(data, line.paper) if line.paper else None
    if numbers is None:
        return "".join(f"{'-':>{width}s}" for _, _, width, _ in COLUMNS)
    return "".join(
        f"{number:{width}.{digits}f}" for number, (_, _, width, digits) in zip(numbers, COLUMNS, strict=True)
    )


if __name__ == "__main__":
    raise SystemExit(main())
