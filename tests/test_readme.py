"""Every block of the README runs by itself, and says what its comments promise."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.blocks import Block, blocks_of, run

README = Path(__file__).parents[1] / "README.md"
BLOCKS = blocks_of(README)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_runs_and_keeps_its_promises(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names: dict = {}
    run(block, names)
    for marker, check in PROMISES.items():
        if block.language == "python" and marker in block.text:
            check(names)


def _scans_are_registered(names: dict) -> None:
    torch.testing.assert_close(names["result"].T_target_source, names["T_true"], atol=0.1, rtol=0)
    assert names["result"].confident


def _layer_recovers_the_motion(names: dict) -> None:
    torch.testing.assert_close(names["alignment"].T_target_source, names["T_true"], atol=1e-5, rtol=0)
    assert names["target"].grad.isfinite().all()


def _wall_leaves_three_directions_open(names: dict) -> None:
    torch.testing.assert_close(names["alignment"].t, torch.tensor([0.0, 0.0, 0.1]), atol=1e-6, rtol=0)
    assert int(names["alignment"].observability.determined) == 3


def _tessera_finds_the_motion(names: dict) -> None:
    torch.testing.assert_close(names["alignment"].T_target_source[0], names["pair"].T_target_source, atol=0.1, rtol=0)


PROMISES = {
    "demo_scans()": _scans_are_registered,
    "target.requires_grad_()": _layer_recovers_the_motion,
    "wall = ": _wall_leaves_three_directions_open,
    'load_model("tessera")': _tessera_finds_the_motion,
}


def test_every_promise_is_in_the_readme() -> None:
    for marker in PROMISES:
        assert any(block.language == "python" and marker in block.text for block in BLOCKS), marker
