"""Normals against Open3D inside one run: ``[OMP_NUM_THREADS=1] python benchmarks/normals.py [--rounds 15]``.

Prints times as ratios, how far the two sets of normals are apart, and what a small cloud costs. Both libraries use as
many threads as OMP_NUM_THREADS says.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from measure import Spread, settle_allocator
from p2plane.geometry.neighbors import knn
from p2plane.geometry.normals import estimate_normals

POINTS, NEIGHBORS = 100_000, 20
BATCH, FEW_POINTS, FEATURES = 8, 1024, 64


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with the given arguments, or those of the shell; the exit code."""
    parser = argparse.ArgumentParser(description="Speed and agreement of estimated normals, against Open3D.")
    parser.add_argument("--rounds", type=int, default=15, help="in which the contestants take turns")
    parser.add_argument("--points", type=int, default=POINTS, help="of the large cloud")
    parser.add_argument("--seed", type=int, default=0, help="of the clouds")
    options = parser.parse_args(arguments)
    open3d = import_open3d()
    settle_allocator()
    print(
        f"{options.points} points, {NEIGHBORS} neighbours, {torch.get_num_threads()} threads, {options.rounds} rounds"
    )
    against_open3d(open3d, bumpy_torus(options.points, options.seed), options.rounds)
    small_clouds(options.seed, options.rounds)
    return 0


def import_open3d() -> Any:
    """Open3D, after the library that it wants to find."""
    try:
        import libusb_package

        ctypes.CDLL(str(libusb_package.get_library_path()))
        import open3d
    except ImportError as error:
        raise ImportError("this benchmark needs Open3D: pip install 'p2plane[open3d]'") from error
    return open3d


def bumpy_torus(points: int, seed: int) -> Tensor:
    """(N, 3) float32 points of a torus with waves and a little noise."""
    generator = torch.Generator().manual_seed(seed)
    u, v = 2 * math.pi * torch.rand(2, points, generator=generator, dtype=torch.float64)
    tube = 0.4 + 0.03 * (7 * u).sin() * (5 * v).cos()
    ring = 1 + tube * v.cos()
    surface = torch.stack([ring * u.cos(), ring * u.sin(), tube * v.sin()], dim=-1)
    return (surface + 0.002 * torch.randn(points, 3, generator=generator, dtype=torch.float64)).float()


def against_open3d(open3d: Any, points: Tensor, rounds: int) -> None:
    """Print the ratio of times and the angles between the normals."""
    cloud = open3d.geometry.PointCloud(open3d.utility.Vector3dVector(points.double().numpy()))
    search = open3d.geometry.KDTreeSearchParamKNN(NEIGHBORS)
    times = race(
        {
            "p2plane": lambda: estimate_normals(points, k=NEIGHBORS),
            "search": lambda: knn(points, points, NEIGHBORS),
            "open3d": lambda: cloud.estimate_normals(search),
        },
        rounds,
    )
    for name in ("p2plane", "search"):
        ratio = Spread.of(own / other for own, other in zip(times[name], times["open3d"], strict=True))
        what = "normals: p2plane / Open3D" if name == "p2plane" else "its search for neighbours / Open3D's normals"
        print(f"{what:46} {ratio.median:6.2f} x   (quartiles {ratio.low:.2f} to {ratio.high:.2f})")
    own = estimate_normals(points, k=NEIGHBORS).normals.double()
    angles = angles_deg(own, torch.from_numpy(np.asarray(cloud.normals)))
    print(f"{'angle between the normals, median, largest':46} {angles.median():.1e} {angles.max():.1e} degrees")


def small_clouds(seed: int, rounds: int) -> None:
    """Print what training pays: normals of one small cloud, neighbours of a batch in space and in feature space."""
    cloud = bumpy_torus(FEW_POINTS, seed)
    batch = torch.stack([bumpy_torus(FEW_POINTS, seed + i) for i in range(BATCH)])
    features = torch.randn(BATCH, FEW_POINTS, FEATURES, generator=torch.Generator().manual_seed(seed))
    times = race(
        {
            f"normals of {FEW_POINTS} points": lambda: estimate_normals(cloud, k=NEIGHBORS),
            f"normals of {BATCH} x {FEW_POINTS} points": lambda: estimate_normals(batch, k=NEIGHBORS),
            f"neighbours of {BATCH} x {FEW_POINTS} points": lambda: knn(batch, batch, NEIGHBORS),
            f"neighbours of {BATCH} x {FEW_POINTS} x {FEATURES} features": lambda: knn(features, features, NEIGHBORS),
            "the same by cdist and topk": lambda: torch.cdist(features, features).topk(NEIGHBORS, largest=False),
        },
        rounds,
    )
    for name, seconds in times.items():
        print(f"{name:46} {1e3 * statistics.median(seconds):6.2f} ms  (fastest {1e3 * min(seconds):.2f})")


def race(contestants: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every contestant in every round; they take turns, so that what slows the machine down slows all."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(1 + rounds):
        for name, work in contestants.items():
            start = perf_counter()
            work()
            if turn:  # the first one warms up
                times[name].append(perf_counter() - start)
    return times


def angles_deg(a: Tensor, b: Tensor) -> Tensor:
    """(N,) angles between lines along unit vectors (N, 3)."""
    return torch.rad2deg(torch.atan2(torch.linalg.cross(a, b).norm(dim=-1), (a * b).sum(-1).abs()))


if __name__ == "__main__":
    raise SystemExit(main())
