"""Small lists of pairs with known motions, quickly registered; a few of the pairs cannot be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from p2plane import Cloud, save_cloud, se3
from tests.registration.scenes import scan

SETTINGS = {"method": "initial", "show_progress": False}
MISSING, BROKEN, NO_POSE = 3, 7, 11  # places of the pairs that fail
GUESSED = 5  # and of the one that is found only with its first guess


def small_motion(index: int) -> Tensor:
    """(4, 4) of a few degrees and centimetres."""
    generator = torch.Generator().manual_seed(index)
    return se3.exp(0.06 * torch.randn(6, generator=generator, dtype=torch.float64))


def large_motion() -> Tensor:
    """(4, 4) of half a turn."""
    return se3.exp(torch.tensor([0.1, 0.2, 3.0, 2.0, -1.0, 0.5], dtype=torch.float64))


def T_true(index: int) -> Tensor:
    """(4, 4) T_target_source of a pair."""
    return se3.inverse(large_motion() if index == GUESSED else small_motion(index))


def write_list(folder: Path, count: int) -> Path:
    """The list of so many pairs."""
    lines = ["source,target,initial"]
    save_cloud(folder / "target.npy", Cloud(scan("room", 100)[::5]))
    for index in range(count):
        motion = large_motion() if index == GUESSED else small_motion(index)
        save_cloud(folder / f"source {index}.npy", Cloud(se3.apply(motion, scan("room", index)[::5])))
        lines.append(f"source {index}.npy,target.npy,")
    (folder / "broken.ply").write_bytes(b"ply\nformat ascii 1.0\nelement vertex 9\nend_header\n")
    (folder / "no pose.txt").write_text("1 2 3\n")
    np.savetxt(folder / "guess.txt", T_true(GUESSED).numpy())
    for index, line in (
        (MISSING, '"nowhere, at all.npy",target.npy,'),
        (BROKEN, f"source {BROKEN}.npy,broken.ply,"),
        (NO_POSE, f"source {NO_POSE}.npy,target.npy,no pose.txt"),
        (GUESSED, f"source {GUESSED}.npy,target.npy,guess.txt"),
    ):
        if index < count:
            lines[1 + index] = line
    (folder / "pairs.csv").write_text("\n".join(lines) + "\n")
    return folder / "pairs.csv"
