"""How many pairs one core makes in a second: ``OMP_NUM_THREADS=1 python benchmarks/pairs.py [--data modelnet40]``."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from time import perf_counter

import torch

from p2plane.data.catalog import CATALOG, open_shapes
from p2plane.data.pairs import PROTOCOLS, PUBLISHED, PairDataset

GOALS = {"cpu": 400, "cpu-noisy": 100}
PAIRS = 200


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with the given arguments, or those of the shell; the exit code."""
    parser = argparse.ArgumentParser(description="Pairs made in a second by one core, shapes in memory.")
    parser.add_argument("--data", choices=tuple(CATALOG), default="synthetic", help="the data set")
    parser.add_argument("--split", default="test")
    parser.add_argument("--rounds", type=int, default=5, help="over which the speed is the median")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    shapes = open_shapes(options.data, options.split)
    if options.data == "synthetic":  # which are made anew whenever they are asked for
        shapes = [shapes[index] for index in range(PAIRS)]
    print(f"{options.data} {options.split}, shapes of {len(shapes[0])} points, {PAIRS} pairs, one thread")
    for protocol in (*PROTOCOLS, *PUBLISHED):
        pairs = PairDataset(shapes, protocol)
        speed = statistics.median(pairs_per_second(pairs) for _ in range(options.rounds))
        goal = f"   goal >= {GOALS[protocol]}" if protocol in GOALS else ""
        print(f"{protocol:14s} {speed:6.0f} pairs/s{goal}")
    return 0


def pairs_per_second(pairs: PairDataset) -> float:
    start = perf_counter()
    for index in range(PAIRS):
        pairs[index]
    return PAIRS / (perf_counter() - start)


if __name__ == "__main__":
    raise SystemExit(main())
