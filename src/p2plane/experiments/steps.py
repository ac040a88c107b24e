"""What one step of a network costs with one head or another: ``python -m p2plane.experiments.steps NETWORK HEADS ...``.

Times are those of heads that take turns in one process, so that what slows the machine down slows all. Memory is the
most that tensors take, above the level before the step; what the C library keeps besides differs between steps by more
than the heads do.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any

import torch

from p2plane.data.pair import PairBatch, collate
from p2plane.data.pairs import PROTOCOLS, PairDataset
from p2plane.data.synthetic import SyntheticShapes
from p2plane.experiments.memory import peak_of_tensors
from p2plane.networks.door import RegistrationNetwork
from p2plane.training.config import settings_from

NETWORKS = {
    "dcp-v2": {"model": {"name": "dcp"}, "loss": "dcp"},
    "prnet": {"model": {"name": "prnet", "train_rounds": 2, "test_rounds": 3}, "loss": "prnet"},
    "rpmnet": {"model": {"name": "rpmnet"}, "loss": "rpmnet"},
}
HEADS: dict[str, dict[str, Any]] = {
    "point": {"head": "point"},
    "plane": {"head": "plane"},
    "published": {"head": "plane", "normals": "eigenvector", "gradient": "penalty"},
    "unrolled": {"head": "plane", "normals": "eigenvector", "gradient": "unrolled"},
}
TINY: dict[str, dict[str, Any]] = {
    "dcp-v2": {"neighbors": 6, "widths": [8, 8, 8, 8], "feature_dim": 16, "heads": 2, "hidden": 16},
    "prnet": {"neighbors": 6, "widths": [8, 8, 8, 8], "feature_dim": 16, "heads": 2, "hidden": 16, "keypoints": 24},
    "rpmnet": {"neighbors": 6, "feature_dim": 8, "parameter_dim": 8},
}

PHASES = ("train", "test")


@dataclass(frozen=True)
class Effort:
    """How large the batch is, and how often a step is timed."""

    batch: int = 8
    points: int = 1024
    rounds: int = 7
    tiny: bool = False


QUICK = Effort(batch=2, points=64, rounds=1, tiny=True)


class Steps:
    """A network with one head, and its steps of training and testing."""

    def __init__(self, network: str, head: str, effort: Effort) -> None:
        model = NETWORKS[network]["model"] | (TINY[network] if effort.tiny else {}) | {"head": HEADS[head]}  # type: ignore[operator]
        if head != "point" and network != "rpmnet":
            model["normal_features"] = True  # as the paper's extensions have it
        values = {"model": model, "loss": NETWORKS[network]["loss"], "data": {"name": "synthetic"}}
        settings = settings_from(values | {"budget": {"steps": 1}})
        torch.manual_seed(0)
        self.model: RegistrationNetwork = settings.model.build()
        self._loss = settings.loss.build()
        self._optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        self._batch = _batch(effort)
        self.train()  # what is allocated once, such as the optimizer's moments, is no part of a step

    def train(self) -> None:
        """Forward, backward and the optimizer's step."""
        self.model.train()
        self._optimizer.zero_grad(set_to_none=True)
        self._loss(self._align(), self._batch).backward()
        self._optimizer.step()

    @torch.no_grad()
    def test(self) -> None:
        """Forward alone."""
        self.model.eval()
        self._align()

    def _align(self) -> Any:
        batch = self._batch
        return self.model(batch.source, batch.target, batch.source_normals, batch.target_normals)


def times_of(network: str, effort: Effort) -> list[dict[str, Any]]:
    """A row for each head and phase: seconds, and how many times those of the point head."""
    times = _ask(network, list(HEADS), effort)
    rows = []
    for head in HEADS:
        for phase in PHASES:
            ratios = [own / point for own, point in zip(times[head][phase], times["point"][phase], strict=True)]
            seconds, ratio = statistics.median(times[head][phase]), statistics.median(ratios)
            rows.append({"network": network, "head": head, "phase": phase, "seconds": seconds, "time_ratio": ratio})
    return rows


def memory_of(network: str, effort: Effort) -> list[dict[str, Any]]:
    """A row for each head and phase: bytes, and how many times those of the point head."""
    peaks = {head: _ask(network, [head], effort, memory=True) for head in HEADS}
    return [
        {
            "network": network,
            "head": head,
            "phase": phase,
            "peak_bytes": peaks[head][phase],
            "memory_ratio": peaks[head][phase] / peaks["point"][phase],
        }
        for head in HEADS
        for phase in PHASES
    ]


def _ask(network: str, heads: list[str], effort: Effort, memory: bool = False) -> Any:
    """`_answer` in a process of its own; in this one if the numbers do not matter."""
    if effort.tiny:
        return _answer(network, heads, effort, memory)
    question = json.dumps({"network": network, "heads": heads, "effort": asdict(effort), "memory": memory})
    command = [sys.executable, "-m", "p2plane.experiments.steps", question]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"measuring {network} failed: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def _answer(network: str, heads: list[str], effort: Effort, memory: bool) -> Any:
    steps = {head: Steps(network, head, effort) for head in heads}
    if memory:
        (only,) = steps.values()
        return {"train": peak_of_tensors(only.train), "test": peak_of_tensors(only.test)}
    times: dict[str, dict[str, list[float]]] = {head: {"train": [], "test": []} for head in heads}
    for _ in range(effort.rounds):
        for head, own in steps.items():
            for phase, step in (("train", own.train), ("test", own.test)):
                times[head][phase].append(_seconds(step))
    return times


def _batch(effort: Effort) -> PairBatch:
    settings = replace(PROTOCOLS["cpu"], points=effort.points, keep=effort.points * 3 // 4)
    pairs = PairDataset(SyntheticShapes("train", shapes_per_category=1), settings)
    return collate([pairs[index] for index in range(effort.batch)])


def _seconds(step: Callable[[], None]) -> float:
    start = perf_counter()
    step()
    return perf_counter() - start


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps(_answer(asked["network"], asked["heads"], Effort(**asked["effort"]), asked["memory"])))
