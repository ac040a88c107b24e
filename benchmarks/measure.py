"""Time and memory of one step: forward, then backward to the inputs."""

from __future__ import annotations

import gc
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Contestant:
    """Something that can be timed: a forward pass, the inputs that want gradients, and what flows in from above."""

    forward: Callable[[], tuple[Tensor, ...]]
    inputs: tuple[Tensor, ...]
    upstream: tuple[Tensor, ...]  # shaped like the outputs

    def backward(self, outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(outputs, self.inputs, self.upstream)


class Seconds(NamedTuple):
    """What one step took."""

    forward: float
    backward: float

    @property
    def total(self) -> float:
        return self.forward + self.backward


class Spread(NamedTuple):
    """Quartiles of repeated measurements."""

    low: float
    median: float
    high: float

    @staticmethod
    def of(values: Iterable[float]) -> Spread:
        return Spread(*statistics.quantiles(values, n=4, method="inclusive"))


def settle_allocator() -> None:
    """Bring glibc's malloc to the state that it has in any process that has run a network.

    At first it maps every block above 128 KB afresh and returns it to the system when it is freed, so that page faults
    are most of what is measured: 1600 of them in one step of 16 pairs of 1024 points. Freeing one large block raises
    that limit to its size, up to 32 MiB with the header; a tensor of 32 MiB is too large to count, one of 32 MB is not.
    """
    torch.empty(32_000_000, dtype=torch.uint8)


def race(contestants: Mapping[Key, Contestant], rounds: int) -> dict[Key, list[Seconds]]:
    """Times of every contestant in every round; they take turns, so that what slows the machine down slows all."""
    warm_up = 1 + rounds // 20
    times: dict[Key, list[Seconds]] = {key: [] for key in contestants}
    gc.collect()
    gc.disable()
    try:
        for turn in range(warm_up + rounds):
            for key, contestant in contestants.items():
                seconds = _step(contestant)
                if turn >= warm_up:
                    times[key].append(seconds)
    finally:
        gc.enable()
    return times


def _step(contestant: Contestant) -> Seconds:
    start = perf_counter()
    outputs = contestant.forward()
    middle = perf_counter()
    contestant.backward(outputs)
    return Seconds(middle - start, perf_counter() - middle)


def saved_bytes(contestant: Contestant) -> int:
    """Bytes that forward keeps for backward beyond the inputs; a storage that several tensors share counts once."""
    kept: dict[int, torch.UntypedStorage] = {}  # holding the storages keeps their addresses from being used again

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs = contestant.forward()
    del outputs
    for tensor in contestant.inputs:
        kept.pop(tensor.untyped_storage().data_ptr(), None)
    return sum(storage.nbytes() for storage in kept.values())


class PeakBytes(NamedTuple):
    """The most bytes of tensors alive at once, beyond what was there before the step."""

    forward: int
    backward: int  # with what forward left alive, and the gradients themselves


def peak_bytes(contestant: Contestant) -> PeakBytes:
    """Peaks of one step, from torch's profiler: every block that torch's allocator gives or takes back on the CPU.

    Forward and backward are recorded together, because the profiler does not report the end of a block whose beginning
    it has not seen. What LAPACK and the threads allocate for themselves does not pass through torch and is left out.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch 2.13 prints two lines for each profile
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        outputs = contestant.forward()
        with torch.profiler.record_function("step: backward"):
            gradients = contestant.backward(outputs)
    del outputs, gradients
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    return _peaks(events)


def _peaks(events: list[dict]) -> PeakBytes:
    backward_starts = next(event["ts"] for event in events if event["name"] == "step: backward")
    blocks = sorted((event["ts"], event["args"]["Bytes"]) for event in events if event["name"] == "[memory]")
    alive = forward = backward = 0
    for moment, size in blocks:
        if moment < backward_starts:
            alive += size
            forward = max(forward, alive)
        else:
            backward = max(backward, alive)
            alive += size
            backward = max(backward, alive)
    return PeakBytes(forward, backward)
