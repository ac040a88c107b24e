"""The layer against its rivals inside one run, as ratios that do not depend on how fast the machine is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cases import Case, bumpy_ellipsoids, kabsch, kabsch_one_by_one, plane, procrustes, registration_by_roma
from measure import Contestant, Spread, race, saved_bytes

BATCH, POINTS, MANY_POINTS, NOISE = 16, 1024, 100_000, 0.01


@dataclass(frozen=True)
class Ratio:
    """One line of the table; a value that is not measured in rounds has no quartiles, one without a goal no verdict."""

    name: str
    value: Spread | float
    unit: str = "x"
    goal: tuple[str, float] | None = None  # (">=", 20.0)

    @property
    def center(self) -> float:
        return self.value.median if isinstance(self.value, Spread) else self.value

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        relation, bound = self.goal
        return {">=": self.center >= bound, ">": self.center > bound, "<=": self.center <= bound}[relation]


def ratios(rounds: int, pairs: int, seed: int) -> Iterator[Ratio]:
    """All lines of the table, one after the other as they are measured.

    Args:
        rounds: of each race between two contestants.
        pairs: over which the errors of the penalty are medians.
        seed: of the clouds.
    """
    case = bumpy_ellipsoids(BATCH, POINTS, NOISE, seed, torch.float32)
    exact, unrolled = plane(case), plane(case, solver="accumulate", gradient="unrolled", max_iterations=10)
    yield from _against_unrolled(exact, unrolled, rounds)
    yield from _against_procrustes(exact, case, rounds)
    yield from _saved(exact, unrolled)
    yield _iterations_at_many_points(rounds, seed)
    for noise in (0.0, 0.01, 0.05):
        yield _error_of_the_penalty(noise, pairs, seed)


def _against_unrolled(exact: Contestant, unrolled: Contestant, rounds: int) -> Iterator[Ratio]:
    times = race({"exact": exact, "unrolled": unrolled}, rounds)
    duels = list(zip(times["unrolled"], times["exact"], strict=True))
    backward = Spread.of(slow.backward / fast.backward for slow, fast in duels)
    total = Spread.of(slow.total / fast.total for slow, fast in duels)
    yield Ratio("backward: unrolled, 10 iterations / exact", backward, goal=(">=", 20))
    yield Ratio("forward + backward: unrolled, 10 iterations / exact", total, goal=(">=", 12))


def _against_procrustes(exact: Contestant, case: Case, rounds: int) -> Iterator[Ratio]:
    rivals = (
        ("Procrustes by one batched SVD", kabsch, ("<=", 1.5)),
        ("Procrustes by roma", registration_by_roma, None),
        ("Procrustes by one SVD at a time", kabsch_one_by_one, None),
    )
    for name, solve, goal in rivals:
        times = race({"exact": exact, "rival": procrustes(case, solve)}, rounds)
        total = Spread.of(own.total / other.total for own, other in zip(times["exact"], times["rival"], strict=True))
        yield Ratio(f"forward + backward: exact / {name}", total, goal=goal)


def _saved(exact: Contestant, unrolled: Contestant) -> Iterator[Ratio]:
    few, many = saved_bytes(exact) / BATCH, saved_bytes(unrolled) / BATCH
    yield Ratio("saved for backward, a pair: exact", few / 1024, "KB", goal=("<=", 2))
    yield Ratio("saved for backward, a pair: unrolled, 10 iterations", many / 1024, "KB")
    yield Ratio("saved for backward: unrolled, 10 iterations / exact", many / few, goal=(">", 400))


def _iterations_at_many_points(rounds: int, seed: int) -> Ratio:
    case = bumpy_ellipsoids(1, MANY_POINTS, NOISE, seed, torch.float32)
    times = race({count: plane(case, solver="accumulate", max_iterations=count) for count in (5, 20)}, rounds)
    forward = Spread.of(long.forward / short.forward for short, long in zip(times[5], times[20], strict=True))
    return Ratio(f"forward at {MANY_POINTS} points: 20 iterations / 5", forward, goal=("<=", 1.3))


def _error_of_the_penalty(noise: float, pairs: int, seed: int) -> Ratio:
    """Relative to exact at the same pose, for a random upstream gradient: that of a loss vanishes without noise."""
    case = bumpy_ellipsoids(pairs, POINTS, noise, seed, torch.float64)
    exact, penalty = (_gradients(case, gradient) for gradient in ("exact", "penalty"))
    apart = (penalty - exact).norm(dim=1) / exact.norm(dim=1)  # (B,)
    return Ratio(
        f"error of the penalty's gradient, 10 iterations, noise {noise:g}", Spread.of((100 * apart).tolist()), "%"
    )


def _gradients(case: Case, gradient: str) -> torch.Tensor:
    """(B, 10 N) gradients by source, target, normals and weights, one after the other."""
    contestant = plane(case, solver="accumulate", gradient=gradient, max_iterations=10)
    return torch.cat([each.flatten(1) for each in contestant.backward(contestant.forward())], dim=1)


def markdown(lines: Sequence[Ratio], settings: Mapping[str, Any]) -> str:
    """The table, and under it what it was measured with."""
    rows = [("Quantity", "Median", "Quartiles", "Goal", "Met"), *(_cells(line) for line in lines)]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    padded = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    padded.insert(1, " | ".join("-" * width for width in widths))
    note = (
        f"{BATCH} pairs of {POINTS} points, float32, noise {NOISE}, gradients to source, target, normals and weights "
        f"(Procrustes: without normals); exact is the default solver, Newton's. "
        f"Times: of {settings['rounds']} rounds in which the contestants take turns. "
        f"Errors of the penalty: float64, of {settings['pairs']} pairs. "
        f"torch {settings['torch']}, {_threads(settings['threads'])} of {settings['cpu']}, seed {settings['seed']}."
    )
    return "\n".join([*(f"| {row} |" for row in padded), "", note, ""])


def _threads(count: int) -> str:
    return "one thread" if count == 1 else f"{count} threads"


def _cells(line: Ratio) -> tuple[str, ...]:
    quartiles = f"{_short(line.value.low)} to {_short(line.value.high)}" if isinstance(line.value, Spread) else ""
    goal = f"{line.goal[0]} {line.goal[1]:g}" if line.goal else ""
    met = {True: "yes", False: "no", None: ""}[line.met]
    return line.name, f"{_short(line.center)} {line.unit}", quartiles, goal, met


def _short(value: float) -> str:
    """Three digits, without an exponent for large values."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
