"""What the networks cost: ``python benchmarks/networks.py [--rounds 5] [--only dcp-v2]``.

Times are in units of a 2048^3 float32 matrix product ("mm") that takes turns with what is measured; memory is the peak
of resident memory above the level before the step. Each network runs in a process of its own, so that none inherits
another's memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor

from p2plane.data.pair import PairBatch, collate
from p2plane.data.pairs import PairDataset
from p2plane.data.synthetic import SyntheticShapes
from p2plane.networks.dcp import DCP, DCPConfig
from p2plane.networks.door import RegistrationNetwork
from p2plane.networks.head import HeadConfig
from p2plane.networks.prnet import PRNet, PRNetConfig
from p2plane.networks.rpmnet import RPMNet, RPMNetConfig
from p2plane.training.losses import dcp_loss, prnet_loss, rpmnet_loss

BATCH, POINTS, PRODUCT = 8, 768, 2048
GOALS = {  # training step in mm and GB, inference in mm
    "dcp-v2": (55, 1.2, None),
    "prnet": (95, 2.5, None),
    "rpmnet": (35, 1.5, 20),
}


def network(name: str, head: str) -> RegistrationNetwork:
    """A network with one of the heads; the plane head of DCP and PRNet with normals in the features."""
    torch.manual_seed(0)
    settings = HeadConfig(head)
    if name == "dcp-v2":
        return DCP(DCPConfig(pointer="transformer", head=settings, normal_features=head == "plane"))
    if name == "prnet":
        plane = head == "plane"
        return PRNet(PRNetConfig(head=settings, normal_features=plane, train_rounds=2, test_rounds=6 if plane else 3))
    return RPMNet(RPMNetConfig(head=settings))


def loss_of(name: str, model: RegistrationNetwork, batch: PairBatch) -> Tensor:
    alignment = model(batch.source, batch.target, batch.source_normals, batch.target_normals)
    if name == "rpmnet":
        return rpmnet_loss(alignment, batch.source, batch.T_target_source)
    return (dcp_loss if name == "dcp-v2" else prnet_loss)(alignment, batch.T_target_source)


def measure(name: str, head: str, rounds: int) -> dict[str, float]:
    """Times in mm and memory in GB of one network with one head."""
    pairs = PairDataset(SyntheticShapes("train", shapes_per_category=1), "cpu")
    batch = collate([pairs[index] for index in range(BATCH)])
    assert batch.source.shape == (BATCH, POINTS, 3)
    model = network(name, head)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def train() -> None:
        model.train()
        optimizer.zero_grad(set_to_none=True)
        loss_of(name, model, batch).backward()
        optimizer.step()

    @torch.no_grad()
    def test() -> None:
        model.eval()
        model(batch.source, batch.target, batch.source_normals, batch.target_normals)

    train()  # what is allocated once, such as the optimizer's moments, is no part of a step
    result = {"train_gb": peak_gigabytes(train), "test_gb": peak_gigabytes(test)}
    result["train_mm"], result["test_mm"] = in_products(train, rounds), in_products(test, rounds)
    return result


def in_products(step: Callable[[], None], rounds: int) -> float:
    """Median time of a step in units of the matrix product that was measured right before it."""
    left, right = torch.randn(PRODUCT, PRODUCT), torch.randn(PRODUCT, PRODUCT)
    return statistics.median(seconds(step) / seconds(lambda: left @ right) for _ in range(rounds))


def seconds(action: Callable[[], object]) -> float:
    start = perf_counter()
    action()
    return perf_counter() - start


def peak_gigabytes(step: Callable[[], None]) -> float:
    """Peak of resident memory during a step above the level before it (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = status("VmRSS")
    step()
    return (status("VmHWM") - before) / 1e6


def status(key: str) -> int:
    """An entry of /proc/self/status, in kB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with the given arguments, or those of the shell; the exit code."""
    parser = argparse.ArgumentParser(description="Time and memory of the networks, with both heads.")
    parser.add_argument("--rounds", type=int, default=5, help="over which times are medians")
    parser.add_argument("--only", choices=tuple(GOALS), help="one network")
    parser.add_argument("--head", choices=("point", "plane"), help="measure here, and print numbers for a program")
    options = parser.parse_args(arguments)
    if options.head:
        print(json.dumps(measure(options.only, options.head, options.rounds)))
        return 0
    print(f"batch {BATCH} of {POINTS} points, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print("network  head    train mm   train GB   test mm    test GB")
    for name in [options.only] if options.only else GOALS:
        report(name, {head: elsewhere(name, head, options.rounds) for head in ("point", "plane")})
    return 0


def elsewhere(name: str, head: str, rounds: int) -> dict[str, float]:
    """`measure` in a process of its own."""
    command = [sys.executable, __file__, "--only", name, "--head", head, "--rounds", str(rounds)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def report(name: str, results: dict[str, dict[str, float]]) -> None:
    for head, result in results.items():
        numbers = "   ".join(f"{result[key]:8.2f}" for key in ("train_mm", "train_gb", "test_mm", "test_gb"))
        print(f"{name:8s} {head:5s} {numbers}")
    time, memory, inference = GOALS[name]
    point, plane = results["point"], results["plane"]
    goals = f"train <= {time} mm, <= {memory} GB" + (f", test <= {inference} mm" if inference else "")
    more = {key: 100 * (plane[key] / point[key] - 1) for key in point}
    print(f"{'':8s} goals of the point head: {goals}")
    print(f"{'':8s} plane head: {more['train_mm']:+.1f} % time, {more['train_gb']:+.1f} % memory (goals: +5, +1)")


if __name__ == "__main__":
    raise SystemExit(main())
