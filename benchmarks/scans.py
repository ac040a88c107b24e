"""`register` on real pairs of scans with known poses, the source first moved at random.

    python benchmarks/scans.py [--starts 10] [--method auto]

Two rows a pair: motions of up to 45 degrees about each axis and half the target's size, and any rotation. An answer is
right within 2 degrees and 1 % of the target's size of the true pose.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from p2plane.data.cloud import Cloud
from p2plane.data.io import load_cloud
from p2plane.data.locate import find_data
from p2plane.geometry import se3, so3
from p2plane.registration import register

RIGHT_DEG, RIGHT_SHARE = 2.0, 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=10, help="random motions of each kind for each pair")
    parser.add_argument("--method", default="auto")
    parser.add_argument("--pairs", nargs="*", default=["room", "lidar", "bunny", "car"])
    options = parser.parse_args()
    root = find_data(None, "scans", remedy="put folders with source.*, target.* and T_target_source.txt there")
    print(f"register(method={options.method!r}), {torch.get_num_threads()} threads")
    print(_line("pair", "motion", "right", "sure", "sure, wrong", "worst", "", "median", "", "seconds"))
    for name in options.pairs:
        for any_rotation in (False, True):
            print(_row(root / name, any_rotation, options.starts, options.method), flush=True)


def _row(folder: Path, any_rotation: bool, starts: int, method: str) -> str:
    source, target = (load_cloud(next(folder.glob(f"{side}.*"))) for side in ("source", "target"))
    T_true = torch.from_numpy(np.loadtxt(folder / "T_target_source.txt"))
    size = float((target.points.amax(0) - target.points.amin(0)).norm())
    results = [_try(source, target, T_true, size, any_rotation, seed, method) for seed in range(starts)]
    angles, shifts, sure, seconds = (torch.tensor(column, dtype=torch.float64) for column in zip(*results, strict=True))
    right = (angles < RIGHT_DEG) & (shifts < RIGHT_SHARE)
    return _line(
        folder.name,
        "any" if any_rotation else "45 degrees",
        f"{int(right.sum())}/{starts}",
        str(int(sure.sum())),
        str(int((sure.bool() & ~right).sum())),
        f"{angles.max():.3f} deg",
        f"{shifts.max():.2%}",
        f"{angles.median():.3f} deg",
        f"{shifts.median():.2%}",
        f"{seconds.median():.1f}",
    )


def _line(name: str, *cells: str) -> str:
    return f"{name:8s}" + "".join(f"{cell:>12s}" for cell in cells)


def _try(
    source: Cloud, target: Cloud, T_true: Tensor, size: float, any_rotation: bool, seed: int, method: str
) -> tuple[float, float, bool, float]:
    T_moved_source = _motion(source.points.double().mean(0), size, any_rotation, seed)
    moved = source.moved(T_moved_source)
    start = time.perf_counter()
    result = register(moved, target, method=method, seed=seed)
    seconds = time.perf_counter() - start
    T_change = result.T_target_source - T_true @ se3.inverse(T_moved_source)
    center = moved.points.double().mean(0)
    angle = math.degrees(float(so3.log(result.R @ T_moved_source[:3, :3] @ T_true[:3, :3].mT).norm()))
    return angle, float((T_change[:3, :3] @ center + T_change[:3, 3]).norm()) / size, result.confident, seconds


def _motion(center: Tensor, size: float, any_rotation: bool, seed: int) -> Tensor:
    """(4, 4) about the source's centre."""
    random = torch.Generator().manual_seed(seed)
    angles = math.pi / 4 * (2 * torch.rand(3, generator=random, dtype=torch.float64) - 1)
    R = so3.about_axis(0, angles[0]) @ so3.about_axis(1, angles[1]) @ so3.about_axis(2, angles[2])
    if any_rotation:
        R = so3.random(generator=random, dtype=torch.float64)
    shift = size / 2 * (2 * torch.rand(3, generator=random, dtype=torch.float64) - 1)
    return se3.from_rotation_translation(R, center + shift - R @ center)


if __name__ == "__main__":
    main()
