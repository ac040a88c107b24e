"""How much memory a step takes."""

from __future__ import annotations

import ctypes
import gc
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

_FORGET_PEAK, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def peak_of_tensors(step: Callable[[], None]) -> int:
    """The most bytes that tensors on the CPU take during a step, above the level before it."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = [each for each in json.loads(path.read_text())["traceEvents"] if each["name"] == "[memory]"]
    if not events:
        return 0
    events.sort(key=lambda each: each["ts"])
    levels = [each["args"]["Total Allocated"] for each in events]
    before: int = levels[0] - events[0]["args"]["Bytes"]
    return max(levels) - before


def peak_resident(step: Callable[[], None]) -> int:
    """The peak of resident memory in bytes during a step, above the level before it (Linux with glibc)."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # what was freed before must not serve the step unseen
    _FORGET_PEAK.write_text("5")
    before = _kilobytes("VmRSS")
    step()
    return 1024 * (_kilobytes("VmHWM") - before)


def _kilobytes(key: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(key))
    return int(line.split()[1])
