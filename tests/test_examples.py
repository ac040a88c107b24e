"""Every example runs on built-in data, and is short."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL = ("budget.steps=2", "validation.every=2", "validation.pairs=2", "batch_size=2", "data.shapes_per_category=2")
PROMISES = {
    "register.py": ((), "confident: True"),
    "layer.py": (("41",), "step  40"),
    "train.py": ((*SMALL, "validation.held_out=0.5"), "2 steps in"),
    "evaluate.py": (("2", "identity", "icp-plane"), "within 5 degrees"),
    "batch.py": (("initial",), "4 pairs, 4 confident, 0 failed"),
}


@pytest.mark.parametrize("name", PROMISES)
def test_an_example_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, promised = PROMISES[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    with torch.random.fork_rng(devices=[]):
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    printed = capsys.readouterr().out
    assert promised in printed
    if name == "layer.py":
        losses = [float(loss) for loss in re.findall(r"loss (\S+)", printed)]
        assert losses[-1] < losses[0] / 10


def test_every_example_is_here_and_short() -> None:
    scripts = sorted(EXAMPLES.glob("*.py"))
    assert [script.name for script in scripts] == sorted(PROMISES)
    for script in scripts:
        assert len(script.read_text().splitlines()) < 40, script.name
