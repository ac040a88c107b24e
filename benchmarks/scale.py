"""What size costs: seconds and memory against points, pairs a second against processes, and a million pairs from there.

    python benchmarks/scale.py [--tables points pairs batch] [--points 1000 10000 100000] [--pairs 40] [--markdown FILE]
    python benchmarks/scale.py --one icp 10000000

Memory is the peak of what a process of its own holds, above what it held with the clouds made and nothing done yet, so
neither torch nor the clouds are in it. The clouds are two samples of a wavy surface, moved apart by a little, float32,
with the normals of the target given; `register` gets none, and estimates them. One thread everywhere. Seconds are those
of the processor, so that a machine with other work changes them little; the pace of a batch needs a machine of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from torch import Tensor

from p2plane import point_to_plane, register, se3
from p2plane.classical.icp import icp
from p2plane.data.pairs import PairDataset
from p2plane.data.synthetic import SyntheticShapes

COUNTS = (10**3, 10**4, 10**5, 10**6, 10**7)
METHODS = ("initial", "sweep", "auto")
CORES = (2, 16, 64)  # of a machine
MACHINES = (1, 10, 100)
CHUNK = 1 << 20
WAVES = ((0.20, 3.0, 0.5), (0.15, -1.0, 2.5), (0.05, 5.0, 4.0))  # height, and turns along x and y


class Clouds(NamedTuple):
    """Two samples of a surface; ``T_target_source`` brings the source onto the target."""

    source: Tensor  # (N, 3) float32
    target: Tensor  # (N, 3)
    normals: Tensor  # (N, 3) of the target
    T_target_source: Tensor  # (4, 4)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--points", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--pairs", type=int, default=40, help="small pairs for the cost of one")
    parser.add_argument("--many", type=int, default=400, help="small pairs for the pace of a batch")
    parser.add_argument("--markdown", type=Path, help="write the tables here as well")
    parser.add_argument("--one", nargs=2, metavar=("WORK", "POINTS"), help="one measurement, as JSON")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.one:
        print(json.dumps(measured(options.one[0], int(options.one[1]))))
        return
    lines = []
    for table in options.tables:
        for line in TABLES[table](options):
            print(line, flush=True)
            lines.append(line)
    if options.markdown:
        options.markdown.write_text("\n".join(lines) + "\n")


def against_points(options: argparse.Namespace) -> Iterator[str]:
    """What each work costs with so many points."""
    yield from (
        "| work | points | seconds | memory, MB | the clouds themselves, MB |",
        "| --- | --: | --: | --: | --: |",
    )
    for work in WORKS:
        for count in options.points:
            found = apart(work, count)
            cells = f"{found['seconds']:.3g}", f"{found['extra'] / 1e6:.0f}", f"{found['clouds'] / 1e6:.0f}"
            yield f"| {work} | {count:,} | {' | '.join(cells)} |"
    yield ""


def for_a_pair(options: argparse.Namespace) -> Iterator[str]:
    """What a small pair costs."""
    yield from ("| `register`, 768 points, method | seconds a pair (median) | slowest |", "| --- | --: | --: |")
    for method in METHODS:
        each = pair_seconds(method, options.pairs)
        yield f"| {method} | {statistics.median(each):.3f} | {max(each):.3f} |"
    yield ""


def of_a_batch(options: argparse.Namespace) -> Iterator[str]:
    """How many pairs are done in a second, and how long a million takes from there."""
    yield from ("| `batch`, method | processes | pairs a second | against one |", "| --- | --: | --: | --: |")
    paces: dict[str, dict[int, float]] = {}
    for method in METHODS:
        paces[method] = {processes: pace(method, processes, options.many) for processes in (1, 2)}
        for processes, each in paces[method].items():
            yield f"| {method} | {processes} | {each:.1f} | {each / paces[method][1]:.2f} |"
    yield from projection(paces)


def projection(paces: dict[str, dict[int, float]]) -> Iterator[str]:
    """Hours for a million pairs, if every core does what one of these two did."""
    names = [f"{machines} x {cores} cores" for machines in MACHINES for cores in CORES]
    yield from ("", f"| a million pairs, hours | {' | '.join(names)} |", f"| --- |{' --: |' * len(names)}")
    for method, each in paces.items():
        hours = [1e6 / (each[2] / 2 * machines * cores) / 3600 for machines in MACHINES for cores in CORES]
        yield f"| {method} | {' | '.join(f'{value:.3g}' for value in hours)} |"


TABLES: dict[str, Callable[[argparse.Namespace], Iterator[str]]] = {
    "points": against_points,
    "pairs": for_a_pair,
    "batch": of_a_batch,
}


def clouds(count: int) -> Clouds:
    """Two samples of so many points each."""
    T_target_source = se3.exp(torch.tensor([0.02, -0.015, 0.03, 0.01, -0.02, 0.015], dtype=torch.float64))
    source, normals = _surface(count, seed=0)
    _in_chunks(source, lambda rows: se3.apply(se3.inverse(T_target_source), rows.double()))
    target, normals = _surface(count, seed=1)
    return Clouds(source, target, normals, T_target_source)


def _surface(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """(N, 3) points of a wavy sheet, and their normals."""
    generator = torch.Generator().manual_seed(seed)
    points, normals = torch.empty(count, 3), torch.empty(count, 3)
    for some, theirs in zip(points.split(CHUNK), normals.split(CHUNK), strict=True):
        x, y = (2 * torch.rand(len(some), 2, generator=generator) - 1).unbind(-1)
        phases = [(height, along * x + across * y, along, across) for height, along, across in WAVES]
        z = sum(height * phase.sin() for height, phase, _, _ in phases)
        slope_x = sum(height * along * phase.cos() for height, phase, along, _ in phases)
        slope_y = sum(height * across * phase.cos() for height, phase, _, across in phases)
        some.copy_(torch.stack([x, y, z], dim=-1))
        theirs.copy_(torch.nn.functional.normalize(torch.stack([-slope_x, -slope_y, torch.ones_like(x)], -1), dim=-1))
    return points, normals


def _in_chunks(points: Tensor, change: Callable[[Tensor], Tensor]) -> None:
    for some in points.split(CHUNK):
        some.copy_(change(some))


def layer(given: Clouds) -> Tensor:
    """Row i belongs to row i: the target stands for the partners."""
    return point_to_plane(given.source, given.target, given.normals).T_target_source


def layer_with_gradient(given: Clouds) -> Tensor:
    source = given.source.requires_grad_()
    pose = point_to_plane(source, given.target, given.normals).T_target_source
    pose.square().sum().backward()
    return pose.detach()


def icp_on_all_points(given: Clouds) -> Tensor:
    return icp(given.source, given.target, None, given.normals, max_distance=0.2).T_target_source


def register_thinned(given: Clouds) -> Tensor:
    return register(given.source, given.target, method="initial").T_target_source


WORKS: dict[str, Callable[[Clouds], Tensor]] = {
    "layer": layer,
    "layer-gradient": layer_with_gradient,
    "icp": icp_on_all_points,
    "register": register_thinned,
}
PAIRED = ("layer", "layer-gradient")  # which take the partners as given


def measured(work: str, count: int) -> dict[str, Any]:
    """Seconds and bytes of one call in this process; `off` is the error of the pose."""
    given = clouds(count)
    if work in PAIRED:  # the source's own points are the partners
        given.target.copy_(given.source)
        _in_chunks(given.target, lambda rows: se3.apply(given.T_target_source, rows.double()))
    WORKS[work](clouds(1000))  # what is loaded late is loaded now
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before, start = _kilobytes("VmRSS"), time.process_time()
    T = WORKS[work](given)
    seconds = time.process_time() - start
    peak = _kilobytes("VmHWM")
    off = float((T.double() - given.T_target_source).abs().max())
    size = sum(tensor.nbytes for tensor in given[:3])
    return {"seconds": seconds, "extra": 1024 * (peak - before), "peak": 1024 * peak, "clouds": size, "off": off}


def apart(work: str, count: int) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--one", work, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{work} of {count} points ended with {done.returncode}: {done.stderr[-500:]}")
    return json.loads(done.stdout)


def pair_seconds(method: str, count: int) -> list[float]:
    """Seconds for each of some small pairs."""
    pairs, seconds = PairDataset(SyntheticShapes("test"), "cpu"), []
    register(pairs[0].source, pairs[0].target, method=method)
    for index in range(count):
        source, target = pairs[index].source, pairs[index].target
        start = time.process_time()
        register(source, target, method=method)
        seconds.append(time.process_time() - start)
    return seconds


def pace(method: str, processes: int, count: int) -> float:
    """Pairs a second of a batch once it is under way."""
    import batch

    with tempfile.TemporaryDirectory() as name:
        pairs = batch._write_pairs(Path(name), count)
        return batch._measured(pairs, Path(name) / "out.csv", "processes", processes, method).pace


def _kilobytes(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1])


if __name__ == "__main__":
    main()
