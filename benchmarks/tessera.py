"""How right the shipped Tessera is, and what each part of it is worth: ``python benchmarks/tessera.py --pairs 200``.

Over test pairs of ModelNet40: the network alone, with one of its parts left out (no retraining), and followed by robust
point-to-plane ICP. One row for each goes to ``benchmarks/results/tessera.csv``, or to ``--out``. With ``--time``,
seconds of a pair instead.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

from p2plane.classical.icp import icp
from p2plane.data.modelnet import ModelNet40
from p2plane.data.pair import Pair, PairBatch, collate
from p2plane.data.pairs import PROTOCOLS, PairDataset
from p2plane.evaluation.metrics import euler_summary, rotation_error
from p2plane.networks.door import RegistrationNetwork
from p2plane.networks.weights import load_model
from p2plane.solve.robust import Tukey

SETTINGS = {
    "cpu": PROTOCOLS["cpu"],
    "cpu-noisy": PROTOCOLS["cpu-noisy"],
    # Angles about each axis from the whole circle, for the motion of the pair and of the shapes it is composed of.
    "cpu-noisy at all angles": replace(PROTOCOLS["cpu-noisy"], max_angle_deg=360.0),
}
WITHOUT = {
    "alone": {},
    "one round": {"test_rounds": 1},
    "three rounds": {"test_rounds": 3},
    "five rounds": {"test_rounds": 5},
    "pairs need not agree": {"consistent": False},
    "planes without points": {"head": {"point_share": 0.0}},
    "points instead of planes": {"head": {"head": "point"}},
}
REACHES = (0.2, 0.1)
RESULTS = Path(__file__).parent / "results" / "tessera.csv"


def batches(protocol: str, pairs: int, size: int) -> list[PairBatch]:
    """So many pairs, spread evenly over the test shapes."""
    data = PairDataset(ModelNet40("test"), SETTINGS[protocol])
    members: list[Pair] = [data[int(index)] for index in torch.linspace(0, len(data) - 1, pairs).round()]
    return [collate(members[first : first + size]) for first in range(0, pairs, size)]


@torch.no_grad()
def poses(model: RegistrationNetwork, data: list[PairBatch]) -> Tensor:
    """(pairs, 4, 4)."""
    return torch.cat([aligned(model, batch) for batch in data])


def aligned(model: RegistrationNetwork, batch: PairBatch) -> Tensor:
    return model(
        batch.source,
        batch.target,
        batch.source_normals,
        batch.target_normals,
        source_mask=batch.source_mask,
        target_mask=batch.target_mask,
    ).T_target_source


def refined(T: Tensor, data: list[PairBatch]) -> Tensor:
    """Poses after ICP with Tukey's kernel, one reach after the other."""
    return torch.stack([_refined(start, batch, row) for start, (batch, row) in zip(T, _rows(data), strict=True)])


def _rows(data: list[PairBatch]) -> Iterator[tuple[PairBatch, int]]:
    for batch in data:
        for row in range(len(batch)):
            yield batch, row


def _refined(T: Tensor, batch: PairBatch, row: int) -> Tensor:
    clouds = [each[row] for each in (batch.source, batch.target, batch.source_normals, batch.target_normals)]
    masks = {"source_mask": batch.source_mask[row], "target_mask": batch.target_mask[row]}
    for reach in REACHES:
        T = icp(*clouds, initial=T, max_distance=reach, robust=Tukey(reach), **masks).T_target_source
    return T


def row_of(protocol: str, what: str, T: Tensor, truth: Tensor) -> dict[str, object]:
    """The paper's numbers, and how many are off by more than 5 and 15 degrees."""
    summary, angle = euler_summary(T, truth), rotation_error(T.double(), truth.double()).rad2deg()
    return {
        "protocol": protocol,
        "what": what,
        "pairs": len(T),
        "rotation_mse_deg2": f"{summary['rotation_mse_deg2']:.4g}",
        "rotation_rmse_deg": f"{summary['rotation_rmse_deg']:.4g}",
        "rotation_mae_deg": f"{summary['rotation_mae_deg']:.4g}",
        "translation_rmse": f"{summary['translation_rmse']:.4g}",
        "translation_mae": f"{summary['translation_mae']:.4g}",
        "angle_median_deg": f"{float(angle.median()):.4g}",
        "over_5_deg_percent": f"{100 * float((angle > 5).double().mean()):.2f}",
        "over_15_deg_percent": f"{100 * float((angle > 15).double().mean()):.2f}",
    }


def measured(weights: str, protocol: str, pairs: int, parts: list[str]) -> Iterator[dict[str, object]]:
    data = batches(protocol, pairs, size=8)
    truth = torch.cat([batch.T_target_source for batch in data])
    for what in parts:
        T = poses(load_model(weights, **WITHOUT[what]), data)
        yield row_of(protocol, what, T, truth)
        if what == "alone":
            yield row_of(protocol, "refined by ICP", refined(T, data), truth)


def seconds_of_a_pair(weights: str, part: str, calls: int = 20) -> float:
    """The median over calls with one pair of 768 points on one core."""
    torch.set_num_threads(1)
    model, (batch, *_) = load_model(weights, **WITHOUT[part]), batches("cpu-noisy", 1, size=1)
    times = []
    for _ in range(calls):
        start = perf_counter()
        poses(model, [batch])
        times.append(perf_counter() - start)
    return median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", default="tessera")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--protocols", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--parts", nargs="*", default=list(WITHOUT), choices=list(WITHOUT))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--time", action="store_true")
    options = parser.parse_args()
    if options.time:
        for part in options.parts:
            print(f"{part}: {seconds_of_a_pair(options.weights, part):.3f} s a pair on one core")
        return
    rows = []
    for protocol in options.protocols:
        for row in measured(options.weights, protocol, options.pairs, options.parts):
            rows.append(row)
            print(*row.values(), sep="  ", flush=True)
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
