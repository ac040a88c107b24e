"""Ten million points.

Each in a process of its own, whose memory is measured (`benchmarks/scale.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torture.conftest import Note

SCALE = Path(__file__).parents[1] / "benchmarks" / "scale.py"
COUNT = int(os.environ.get("P2PLANE_TORTURE_POINTS", 10**7))
GB = 10**9
NEEDED = 10  # GB of free memory, without which nothing is tried

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system does not tell its peak memory"),
    pytest.mark.limit(900),
]


@pytest.fixture(autouse=True)
def _enough_memory() -> None:
    line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    free = int(line.split()[1]) * 1024
    if free < NEEDED * GB * COUNT // 10**7:
        pytest.skip(f"{NEEDED} GB of free memory are needed, {free / GB:.1f} GB are there")


@pytest.mark.parametrize("work", ["layer", "layer-gradient"])
def test_the_layer(work: str, note: Note) -> None:
    found = measure(work)
    assert found["extra"] < GB
    assert found["off"] < 1e-3
    what = "`point_to_plane`" + (", forwards and backwards" if work != "layer" else "")
    note(f"{what} on {COUNT:,} pairs", f"right, with {_gigabytes(found)}; the limit was the clouds and 1 GB")


@pytest.mark.parametrize(
    ("work", "what"),
    [("icp", "`icp` on all points"), ("register", "`register(method='initial')`, which thins them")],
)
def test_refinement(work: str, what: str, note: Note) -> None:
    found = measure(work)
    assert found["peak"] < 8 * GB
    assert found["off"] < 1e-3
    note(f"{what}, {COUNT:,} points against {COUNT:,}", f"right, with {_gigabytes(found)}; the limit was 8 GB in all")


def measure(work: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(SCALE), "--one", work, str(COUNT)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def _gigabytes(found: dict[str, Any]) -> str:
    return f"{found['peak'] / GB:.1f} GB resident, {found['extra'] / GB:.2f} GB of them beyond the clouds and torch"
