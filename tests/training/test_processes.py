"""Trainings in processes of their own: killed without warning, and two that train together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from p2plane.training import train
from tests.training.tiny import as_arguments, assert_equal, tiny, weights

SCRIPT = """
import sys
from p2plane.cli import main
if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
"""


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")


def start(folder: Path, *changes: str, launcher: Sequence[str] = ()) -> subprocess.Popen:
    """`p2plane train` in a process of its own, or in those that a launcher starts."""
    script = folder.with_suffix(".py")
    script.write_text(SCRIPT)
    command = [sys.executable, *launcher, str(script), *as_arguments(*changes), "--out", str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_after(process: subprocess.Popen, checkpoint: Path) -> None:
    """SIGKILL as soon as a checkpoint or a later one is there."""
    while process.poll() is None:
        if any(path.name >= checkpoint.name for path in checkpoint.parent.glob("step-*.ckpt")):
            os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.01)
    process.communicate()


def test_a_training_that_is_killed_ends_with_the_same_weights(tmp_path: Path) -> None:
    changes = "checkpoint.steps=1", "budget.steps=16"
    train(tiny(*changes), tmp_path / "alone")
    folder = tmp_path / "killed"
    for step in (3, 8):
        kill_after(start(folder, *changes), folder / "checkpoints" / f"step-{step:09d}.ckpt")
    process = start(folder, *changes)
    _, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    assert_equal(weights(folder), weights(tmp_path / "alone"))
    assert_equal(weights(folder, "best"), weights(tmp_path / "alone", "best"))


@pytest.mark.parametrize("launcher", [(), TORCHRUN], ids=["lightning", "torchrun"])
def test_two_processes_learn_what_one_does_from_the_same_batches(launcher: Sequence[str], tmp_path: Path) -> None:
    # A large epsilon, as Adam blows up the rounding of gradients that are zero, such as those of a bias before a norm.
    # And short steps: after long ones rounding decides which neighbours win a maximum.
    changes = "model.head.head=point", "batch_size=4", "optimizer.eps=0.1", "optimizer.lr=0.03", "budget.steps=4"
    train(tiny(*changes), tmp_path / "one")
    process = start(tmp_path / "two", *changes, "devices=2", launcher=launcher)
    _, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    before = tiny(*changes).model.build().state_dict()
    moved = max(float((one[name] - before[name]).abs().max()) for name in one)
    apart = max(float((one[name] - two[name]).abs().max()) for name in one)
    assert moved > 1e-2
    assert apart < 1e-4 * moved
    assert all(torch.isfinite(tensor).all() for tensor in two.values())
