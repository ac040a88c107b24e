"""How sure is sure? Registers pairs whose answer is known, fits the weights of `confidence`, and judges them.

    python benchmarks/confidence.py collect rows.csv --pairs 60    registers pairs of the training shapes
    python benchmarks/confidence.py fit rows.csv more.csv          the weights, and what they would have said

Pairs are turned by any rotation. The first of them are registered once more, with the target of a pair far away in the
data set, or, where all frames are of one room, the mirror image of their own, so that every answer is wrong. "depth"
are two views of a made-up room, which overlap in part.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from p2plane.data.catalog import open_shapes
from p2plane.data.pair import Pair
from p2plane.data.pairs import PairDataset
from p2plane.data.room import scan_room
from p2plane.geometry import se3, so3
from p2plane.registration.confidence import CONFIDENT, SHIFT_ALLOWED, TURN_ALLOWED, Evidence, in_tolerances, probability
from p2plane.registration.pipeline import register

PROTOCOLS = ("cpu", "cpu-noisy", "cpu-noisy-so3", "modelnet40", "icl-nuim", "depth")
DEPTH_POINTS = 3000
FOUND = 3.0  # times what a right answer may be off


def collect(path: Path, numbers: range, different: int, split: str, protocols: Sequence[str]) -> None:
    """Append one row for each pair of each protocol, and one more for the first so many of them."""
    for protocol in protocols:
        for number, (pair, other) in zip(numbers, _two_of_a_kind(protocol, numbers, split), strict=True):
            _append(path, protocol, "same", number, pair, pair.target)
            if number - numbers.start < different:
                _append(path, protocol, "different", number, pair, other)


def _two_of_a_kind(protocol: str, numbers: range, split: str) -> Iterator[tuple[Pair, Tensor]]:
    """Pairs, each with a target that does not belong to its source."""
    if protocol == "depth":
        views = (_two_views(seed) for seed in numbers)
        yield from ((pair, _mirrored(pair.target)) for pair in views)
        return
    data = PairDataset(open_shapes("icl-nuim" if protocol == "icl-nuim" else "modelnet40", split), protocol, seed=7)
    for index in numbers:
        pair, other = data[index % len(data)], data[(index + len(data) // 2) % len(data)]
        yield pair, _mirrored(pair.target) if protocol == "icl-nuim" else other.target


def _two_views(seed: int) -> Pair:
    random = np.random.default_rng([seed, 11])
    (source, T_room_source), (target, T_room_target) = (
        scan_room(
            tuple(random.uniform((2.5, 2.3, 1.4), (3.9, 3.9, 2.0))),
            tuple(random.uniform((0.4, 0.4, 0.3), (1.8, 1.8, 0.9))),
            DEPTH_POINTS,
            int(random.integers(2**31)),
        )
        for _ in range(2)
    )
    T_target_source = torch.from_numpy(np.linalg.inv(T_room_target) @ T_room_source)
    none = torch.zeros(0, 3)  # normals are estimated
    return Pair(source.points, target.points, none, none, T_target_source.float())


def _mirrored(points: Tensor) -> Tensor:
    return points * torch.tensor([-1.0, 1.0, 1.0])


def _append(path: Path, protocol: str, kind: str, number: int, pair: Pair, target: Tensor) -> None:
    T_turned_source = se3.random(generator=torch.Generator().manual_seed(number))
    source = se3.apply(T_turned_source, pair.source)
    result = register(source, target)
    T_true = pair.T_target_source.double() @ se3.inverse(T_turned_source.double())
    angle, shift = _errors(result.T_target_source, T_true, source.double().mean(0), result.size)
    right = kind == "same" and angle < TURN_ALLOWED and shift < SHIFT_ALLOWED
    row = {"protocol": protocol, "kind": kind, "number": number, "right": int(right)}
    row |= {"angle_deg": math.degrees(angle), "shift": shift}
    row |= asdict(result.evidence)
    row["scores"] = " ".join(f"{each.score:.4f}" for each in result.candidates)
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def _errors(T: Tensor, T_true: Tensor, center: Tensor, size: float) -> tuple[float, float]:
    angle = float(so3.log(T[:3, :3] @ T_true[:3, :3].mT).norm())
    shift = (se3.apply(T, center[None]) - se3.apply(T_true, center[None])).norm() / size
    return angle, float(shift)


def fit(paths: Sequence[Path]) -> None:
    """Logistic regression of what was found, with a little decay, and of the errors of that, in spreads.

    Prints the weights, and how those in the package judge the rows.
    """
    rows = [row for path in paths for row in csv.DictReader(path.read_text().splitlines())]
    evidence = [_evidence(row) for row in rows]
    right, found = (torch.tensor([test(row) for row in rows], dtype=torch.float64) for test in (_is_right, _is_found))
    features = torch.tensor([each.features() for each in evidence], dtype=torch.float64)
    judged = torch.tensor([each.open_directions == 0 and each.fitness > 0 for each in evidence])
    weights = _logistic(features[judged], found[judged])
    print(f"BIAS = {weights[0]:.2f}\nWEIGHTS = ({', '.join(f'{weight:.2f}' for weight in weights[1:])})")
    spreads = torch.tensor([each.spread for each in evidence], dtype=torch.float64)
    errors = torch.tensor([_error(row) for row in rows], dtype=torch.float64)
    coin_toss, steepness = _log_logistic((errors / spreads)[judged & found.bool() & spreads.isfinite()])
    print(f"COIN_TOSS_SPREAD, STEEPNESS = {1 / coin_toss:.2f}, {steepness:.2f}")
    print("With the weights as they are in the package:")
    confidence = torch.tensor([probability(each) for each in evidence])
    for protocol in PROTOCOLS:
        of_protocol = torch.tensor([row["protocol"] == protocol for row in rows])
        print(f"{protocol:12s} {_judgement(confidence[of_protocol], right[of_protocol])}")
    print(f"{'all':12s} {_judgement(confidence, right)}")


def _is_right(row: dict[str, str]) -> bool:
    return row["right"] == "1"


def _is_found(row: dict[str, str]) -> bool:
    """Whether an answer is near the right one; how near it is, the spread of halves says."""
    return row["kind"] == "same" and _error(row) < FOUND


def _error(row: dict[str, str]) -> float:
    """In units of what a right answer may be off."""
    return in_tolerances(math.radians(float(row["angle_deg"])), float(row["shift"]), 1.0)


def _log_logistic(values: Tensor) -> tuple[float, float]:
    """Scale and shape of the log-logistic distribution with the values' median and 95th percentile."""
    median, high = values.quantile(torch.tensor([0.5, 0.95], dtype=values.dtype)).tolist()
    return median, math.log(0.95 / 0.05) / math.log(high / median)


def _judgement(confidence: Tensor, right: Tensor) -> str:
    sure = confidence >= CONFIDENT
    return (
        f"{len(right)} pairs, {int(right.sum())} right; "
        f"{int((sure & (right == 0)).sum())} of {int(sure.sum())} confident answers wrong; "
        f"{int((sure & (right == 1)).sum())} of {int(right.sum())} right answers confident"
    )


def _evidence(row: dict[str, str]) -> Evidence:
    whole = ("agreeing", "open_directions")
    return Evidence(**{name: (int if name in whole else float)(row[name]) for name in Evidence.__dataclass_fields__})


def _logistic(features: Tensor, labels: Tensor, decay: float = 1e-4) -> Tensor:
    """(F + 1,) bias and weights, by Newton's method on standardised features."""
    mean, spread = features.mean(0), features.std(0)
    rows = torch.cat([torch.ones(len(features), 1, dtype=features.dtype), (features - mean) / spread], dim=1)
    weights = torch.zeros(rows.shape[1], dtype=rows.dtype)
    ridge = decay * len(rows) * torch.eye(len(weights), dtype=rows.dtype)
    ridge[0, 0] = 0
    for _ in range(50):
        chance = torch.sigmoid(rows @ weights)
        hessian = rows.mT @ ((chance * (1 - chance))[:, None] * rows) + ridge
        weights = weights - torch.linalg.solve(hessian, rows.mT @ (chance - labels) + ridge @ weights)
    slopes = weights[1:] / spread
    return torch.cat([(weights[0] - slopes @ mean)[None], slopes])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("collect", "fit"))
    parser.add_argument("rows", type=Path, nargs="+")
    parser.add_argument("--pairs", type=int, default=60, help="of each protocol")
    parser.add_argument("--first", type=int, default=0, help="number of the first of them")
    parser.add_argument("--different", type=int, default=60, help="pairs that do not belong together besides")
    parser.add_argument("--split", default="train")
    parser.add_argument("--protocols", nargs="+", choices=PROTOCOLS, default=PROTOCOLS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.action == "collect":
        numbers = range(options.first, options.first + options.pairs)
        collect(options.rows[0], numbers, options.different, options.split, options.protocols)
    else:
        fit(options.rows)
