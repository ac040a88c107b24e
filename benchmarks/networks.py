"""What the networks cost: ``python benchmarks/networks.py [--rounds 5] [--only dcp-v2]``.

Times are in units of a 2048^3 float32 matrix product ("mm") that takes turns with what is measured. What the plane head
takes more is the median over the turns, in which the heads follow one another. Memory is the peak of resident memory
above the level before the step, and that of tensors alone: what the allocator of the C library keeps besides differs by
some percent from step to step, which is more than the heads do. Each network runs in a process of its own, so that none
inherits another's memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter, process_time

import torch
from torch import Tensor

from p2plane.data.pair import PairBatch, collate
from p2plane.data.pairs import PairDataset
from p2plane.data.synthetic import SyntheticShapes
from p2plane.experiments.memory import peak_of_tensors, peak_resident
from p2plane.matching.keypoints import take
from p2plane.networks.dcp import DCP, DCPConfig
from p2plane.networks.door import RegistrationNetwork
from p2plane.networks.head import HeadConfig, pose_from_match
from p2plane.networks.prnet import PRNet, PRNetConfig
from p2plane.networks.rpmnet import RPMNet, RPMNetConfig
from p2plane.training.losses import dcp_loss, prnet_loss, rpmnet_loss

BATCH, POINTS, PRODUCT = 8, 768, 2048
GB = 1e9
HEADS = ("point", "plane")
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


def batch_of_pairs() -> PairBatch:
    """The pairs that all are measured on."""
    pairs = PairDataset(SyntheticShapes("train", shapes_per_category=1), "cpu")
    batch = collate([pairs[index] for index in range(BATCH)])
    assert batch.source.shape == (BATCH, POINTS, 3)
    return batch


def steps(name: str, head: str, batch: PairBatch) -> dict[str, Callable[[], None]]:
    """A training step and an inference of one network with one head."""
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

    return {"train": train, "test": test}


def head_step(name: str, head: str, batch: PairBatch) -> Callable[[], None]:
    """Forward and backward of the head alone, as often as a training step has it, on a match of the network."""
    model = network(name, head).train()
    with torch.no_grad():
        alignment = model(batch.source, batch.target, batch.source_normals, batch.target_normals)
    first = alignment.rounds[0]
    assert first.match is not None
    match = (first.match / first.match.sum(-1, keepdim=True)).requires_grad_()
    rows = first.extras.get("target_rows", torch.arange(POINTS).expand(BATCH, -1))
    target, normals = take(batch.target, rows), take(batch.target_normals, rows)
    source = first.source.detach().requires_grad_()
    calls = {"dcp-v2": 1, "prnet": 4, "rpmnet": 2}[name]  # PRNet solves both ways in two rounds

    def step() -> None:
        for _ in range(calls):
            alignment, _ = pose_from_match(HeadConfig(head), match, source, target, normals, first.weights)
            torch.autograd.grad(alignment.T_target_source.square().sum(), (match, source))

    return step


def measure_times(name: str, rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """Medians of times in mm for each head, which take turns; the product is measured before each of them."""
    batch = batch_of_pairs()
    of_heads = {head: steps(name, head, batch) | {"alone": head_step(name, head, batch)} for head in HEADS}
    contestants = {f"{head} {mode}": of_heads[head][mode] for mode in ("train", "test", "alone") for head in HEADS}
    left, right = torch.randn(PRODUCT, PRODUCT), torch.randn(PRODUCT, PRODUCT)
    times: dict[str, list[float]] = {key: [] for key in contestants}
    for turn in range(1 + rounds):
        for key, step in contestants.items():
            product = seconds(lambda: left @ right, clock)
            ratio = seconds(step, clock) / product
            if turn > 0:  # the first is there to warm up
                times[key].append(ratio)
    result = {key: statistics.median(values) for key, values in times.items()}
    more = (plane / point for point, plane in zip(times["point train"], times["plane train"], strict=True))
    return result | {"plane more": statistics.median(more)}


def measure_memory(name: str, head: str) -> dict[str, float]:
    """Peaks in GB of one network with one head, medians of five, in a process that has done nothing else."""
    step = steps(name, head, batch_of_pairs())
    step["train"]()  # what is allocated once, such as the optimizer's moments, is no part of a step
    resident = {
        f"{head} {mode} GB": statistics.median(peak_resident(each) for _ in range(5)) / GB
        for mode, each in step.items()
    }
    return resident | {f"{head} tensors GB": peak_of_tensors(step["train"]) / GB}


def seconds(action: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    action()
    return clock() - start


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with the given arguments, or those of the shell; the exit code."""
    parser = argparse.ArgumentParser(description="Time and memory of the networks, with both heads.")
    parser.add_argument("--rounds", type=int, default=5, help="over which times are medians")
    parser.add_argument("--only", choices=tuple(GOALS), help="one network")
    parser.add_argument("--cpu", action="store_true", help="CPU time of one thread, where others use the machine too")
    parser.add_argument("--part", choices=("times", *HEADS), help="measure here, and print numbers for a program")
    options = parser.parse_args(arguments)
    if options.cpu:
        torch.set_num_threads(1)
    if options.part == "times":
        print(json.dumps(measure_times(options.only, options.rounds, process_time if options.cpu else perf_counter)))
        return 0
    if options.part:
        print(json.dumps(measure_memory(options.only, options.part)))
        return 0
    clock = "CPU time" if options.cpu else "wall time"
    print(f"batch {BATCH} of {POINTS} points, {torch.get_num_threads()} threads, {clock}, torch {torch.__version__}")
    print("network  head   train mm   train GB   in tensors    test mm    test GB   head alone, of a training step")
    for name in [options.only] if options.only else GOALS:
        report(name, {key: value for part in ("times", *HEADS) for key, value in elsewhere(name, part, options)})
    return 0


def elsewhere(name: str, part: str, options: argparse.Namespace) -> Iterable[tuple[str, float]]:
    """What is measured in a process of its own."""
    command = [sys.executable, __file__, "--only", name, "--part", part, "--rounds", str(options.rounds)]
    command += ["--cpu"] if options.cpu else []
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(answer.splitlines()[-1]).items()


def report(name: str, results: dict[str, float]) -> None:
    """Print what was found, and what was aimed at."""
    for head in HEADS:
        columns = ("train", "train GB", "tensors GB", "test", "test GB")
        numbers = "   ".join(f"{results[f'{head} {key}']:8.2f}" for key in columns)
        share = results[f"{head} alone"] / results[f"{head} train"]
        print(f"{name:8s} {head:5s} {numbers}   {100 * share:.1f} %")
    time, memory, inference = GOALS[name]
    goals = f"train <= {time} mm, <= {memory} GB" + (f", test <= {inference} mm" if inference else "")
    time_ratio = results["plane more"]
    tensors, resident = (results[f"plane {key}"] / results[f"point {key}"] for key in ("tensors GB", "train GB"))
    print(f"{'':8s} goals of the point head: {goals}")
    print(
        f"{'':8s} plane head: {time_ratio - 1:+.1%} time, {tensors - 1:+.1%} memory of tensors (goals: +5 %, +1 %), "
        f"{resident - 1:+.1%} resident"
    )


if __name__ == "__main__":
    raise SystemExit(main())
