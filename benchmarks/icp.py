"""ICP against Open3D and small_gicp inside one run: ``[OMP_NUM_THREADS=1] python benchmarks/icp.py [--scenes 7]``.

Prints the errors of the poses, and times as ratios. All start from the identity with the same clouds and the same
normals, build their own search trees, and use as many threads as OMP_NUM_THREADS says. Point-to-plane stops by Open3D's
rule, or after as many rounds; plane-to-plane stops by the rule of each library, as tight as the others.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cases import bumpy_ellipsoids
from measure import Spread, settle_allocator
from normals import import_open3d, race
from p2plane import estimate_normals, se3
from p2plane.classical.icp import icp
from p2plane.evaluation.metrics import rotation_error, translation_error

COUNTS = (1_000, 10_000, 100_000)
NOISE, MAX_DISTANCE, MAX_ITERATIONS, RMSE_CHANGE = 0.002, 0.3, 50, 1e-6
AT_REST = 1e-12  # with the change above, Open3D's plane-to-plane stops short of where all three libraries end
TWIST = (0.1, -0.12, 0.1, 0.06, -0.08, 0.05)  # radians, and a unit is about the cloud's radius

Method = Callable[["Scene"], Callable[[], np.ndarray]]  # prepares a scene, and registers it as often as it is called


class Scene(NamedTuple):
    """Two samples of one surface with noise, moved apart, and the clouds in each library's form."""

    source: Tensor  # (N, 3) float64
    target: Tensor  # (N, 3)
    source_normals: Tensor  # (N, 3)
    target_normals: Tensor  # (N, 3)
    T_target_source: Tensor  # (4, 4)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with the given arguments, or those of the shell; the exit code."""
    parser = argparse.ArgumentParser(description="Errors and speed of ICP, against Open3D and small_gicp.")
    parser.add_argument("--turns", type=int, default=3, help="on each scene of 10,000 points; more of fewer points")
    parser.add_argument("--scenes", type=int, default=7, help="over which errors and times are medians")
    parser.add_argument("--points", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    open3d = import_open3d()
    settle_allocator()
    print(f"{torch.get_num_threads()} threads, noise {NOISE}, partners within {MAX_DISTANCE}, {options.scenes} scenes")
    planes: dict[str, Method] = {"p2plane": ours_planes, "Open3D": partial(open3d_planes, open3d)}
    fixed: dict[str, Method] = {
        "p2plane, 30 rounds": partial(ours_planes, rounds=30),
        "Open3D, 30 rounds": partial(open3d_planes, open3d, rounds=30),
    }
    surfaces: dict[str, Method] = {"p2plane": ours_surfaces, "Open3D": partial(open3d_surfaces, open3d)}
    small_gicp = _small_gicp()
    if small_gicp is None:
        print("small_gicp is not installed: left out (pip install --no-deps small_gicp)")
    else:
        surfaces["small_gicp"] = partial(small_gicp_surfaces, small_gicp)
    for title, methods in (("point-to-plane", planes), ("point-to-plane", fixed), ("plane-to-plane", surfaces)):
        for points in options.points:
            scenes = [scene(points, options.seed + i) for i in range(options.scenes)]
            turns = max(2, round(options.turns * 10_000 / points))
            print_rows(title, points, compare(methods, scenes, turns))
    return 0


def scene(points: int, seed: int) -> Scene:
    """A scene of so many points a side."""
    surface = bumpy_ellipsoids(1, 2 * points, 0.0, seed, torch.float64).source[0]
    surface = surface + NOISE * torch.randn(surface.shape, generator=torch.Generator().manual_seed(seed)).double()
    T = se3.exp(torch.tensor(TWIST, dtype=torch.float64))
    target, source = surface[:points].contiguous(), se3.apply(se3.inverse(T), surface[points:]).contiguous()
    return Scene(source, target, estimate_normals(source).normals, estimate_normals(target).normals, T)


class Row(NamedTuple):
    """One line of the table."""

    name: str
    degrees: float
    shift: float
    ratio: Spread  # of the first method's time to this one's, turn by turn
    fastest: float  # the same of the fastest turns on a scene, which other programs disturbed least; their median


def compare(methods: dict[str, Method], scenes: list[Scene], turns: int) -> Iterator[Row]:
    """The median errors over the scenes, and the times of all turns on all of them."""
    errors: dict[str, list[tuple[float, float]]] = {name: [] for name in methods}
    times: dict[str, list[list[float]]] = {name: [] for name in methods}
    for each in scenes:
        ready = {name: method(each) for name, method in methods.items()}
        for name, seconds in race(ready, turns).items():
            times[name].append(seconds)
            errors[name].append(_errors(ready[name](), each))
    ours = next(iter(times.values()))
    for name, theirs in times.items():
        turn_by_turn = zip(chain(*ours), chain(*theirs), strict=True)
        fastest = [min(own) / min(other) for own, other in zip(ours, theirs, strict=True)]
        degrees, shift = (statistics.median(each) for each in zip(*errors[name], strict=True))
        milliseconds = 1e3 * statistics.median(map(min, theirs))
        yield Row(
            f"{name} ({milliseconds:.1f} ms)",
            degrees,
            shift,
            Spread.of(own / other for own, other in turn_by_turn),
            statistics.median(fastest),
        )


def print_rows(title: str, points: int, rows: Iterator[Row]) -> None:
    """Print one comparison."""
    print(f"\n{title}, {points} points")
    print(f"  {'method (fastest turn)':32} {'degrees':>8} {'shift':>8}   time of p2plane / this one")
    for row in rows:
        all_turns = f"all turns {row.ratio.median:.2f} x ({row.ratio.low:.2f} to {row.ratio.high:.2f})"
        times = f"fastest turns {row.fastest:.2f} x, {all_turns}"
        print(f"  {row.name:32} {row.degrees:8.4f} {row.shift:8.5f}   {times}", flush=True)


def ours_planes(scene: Scene, rounds: int | None = None) -> Callable[[], np.ndarray]:
    """Point-to-plane by p2plane, by the rule of Open3D or in so many rounds."""
    rule: dict[str, Any] = {"max_iterations": MAX_ITERATIONS, "rmse_tolerance": RMSE_CHANGE}
    if rounds is not None:
        rule = {"max_iterations": rounds, "tolerance": 1e-300}
    return lambda: icp(
        scene.source, scene.target, target_normals=scene.target_normals, max_distance=MAX_DISTANCE, **rule
    ).T_target_source.numpy()


def ours_surfaces(scene: Scene) -> Callable[[], np.ndarray]:
    """Plane-to-plane by p2plane, until a round moves the cloud by no more than a millionth, as small_gicp."""
    return lambda: icp(
        *scene[:4], distance="plane-to-plane", max_distance=MAX_DISTANCE, max_iterations=MAX_ITERATIONS
    ).T_target_source.numpy()


def open3d_planes(open3d: Any, scene: Scene, rounds: int | None = None) -> Callable[[], np.ndarray]:
    """Point-to-plane by Open3D's `registration_icp`."""
    registration = open3d.pipelines.registration
    source, target = open3d_cloud(open3d, scene.source), open3d_cloud(open3d, scene.target, scene.target_normals)
    distance = registration.TransformationEstimationPointToPlane()
    change, most = (RMSE_CHANGE, MAX_ITERATIONS) if rounds is None else (0.0, rounds)
    rule = registration.ICPConvergenceCriteria(change, change, most)
    return lambda: registration.registration_icp(source, target, MAX_DISTANCE, np.eye(4), distance, rule).transformation


def open3d_surfaces(open3d: Any, scene: Scene) -> Callable[[], np.ndarray]:
    """Plane-to-plane by Open3D's `registration_generalized_icp`."""
    registration = open3d.pipelines.registration
    source = open3d_cloud(open3d, scene.source, scene.source_normals)
    target = open3d_cloud(open3d, scene.target, scene.target_normals)
    distance = registration.TransformationEstimationForGeneralizedICP(1e-3)
    rule = registration.ICPConvergenceCriteria(AT_REST, AT_REST, MAX_ITERATIONS)
    return lambda: (
        registration.registration_generalized_icp(
            source, target, MAX_DISTANCE, np.eye(4), distance, rule
        ).transformation
    )


def small_gicp_surfaces(small_gicp: Any, scene: Scene) -> Callable[[], np.ndarray]:
    """Plane-to-plane by small_gicp, with its own covariances, which are not timed."""
    source, target = (small_gicp.PointCloud(each.numpy()) for each in (scene.source, scene.target))
    for cloud in (source, target):
        small_gicp.estimate_normals_covariances(cloud, num_neighbors=20)
    threads = torch.get_num_threads()

    def register() -> np.ndarray:
        tree = small_gicp.KdTree(target, num_threads=threads)
        return small_gicp.align(
            target,
            source,
            tree,
            registration_type="GICP",
            max_correspondence_distance=MAX_DISTANCE,
            num_threads=threads,
            max_iterations=MAX_ITERATIONS,
            rotation_epsilon=1e-6,
            translation_epsilon=1e-6,
        ).T_target_source

    return register


def open3d_cloud(open3d: Any, points: Tensor, normals: Tensor | None = None) -> Any:
    """The points as Open3D has them."""
    cloud = open3d.geometry.PointCloud(open3d.utility.Vector3dVector(points.numpy()))
    if normals is not None:
        cloud.normals = open3d.utility.Vector3dVector(normals.numpy())
    return cloud


def _small_gicp() -> Any:
    try:
        import small_gicp
    except ImportError:
        return None
    return small_gicp


def _errors(T: np.ndarray, scene: Scene) -> tuple[float, float]:
    """Degrees and length between a pose and the true one."""
    found = torch.from_numpy(np.array(T))
    turn, shift = rotation_error(found, scene.T_target_source), translation_error(found, scene.T_target_source)
    return float(turn.rad2deg()), float(shift)


if __name__ == "__main__":
    raise SystemExit(main())
