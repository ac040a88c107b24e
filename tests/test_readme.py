"""Every Python block of the README runs, and says what its comments promise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_a_block_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    exec(compile(block, str(README), "exec"), {})


def test_the_first_block_recovers_the_motion() -> None:
    torch.manual_seed(0)
    names: dict = {}
    exec(compile(BLOCKS[0], str(README), "exec"), names)
    torch.testing.assert_close(names["alignment"].T_target_source, names["T_true"], atol=1e-5, rtol=0)
    assert names["target"].grad.isfinite().all()


def test_the_second_block_tells_what_a_wall_determines() -> None:
    torch.manual_seed(0)
    names: dict = {}
    exec(compile(BLOCKS[1], str(README), "exec"), names)
    torch.testing.assert_close(names["alignment"].t, torch.tensor([0.0, 0.0, 0.1]), atol=1e-6, rtol=0)
    assert int(names["alignment"].observability.determined) == 3


def test_the_third_block_estimates_normals_not_far_from_the_true_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(compile(BLOCKS[2], str(README), "exec"), names)
    agreement = (names["geometry"].normals * names["cloud"].normals).sum(-1).abs()
    assert agreement.median() > 0.8
    assert names["pair"].source.shape == (768, 3)
