"""Makes the pictures of the documentation anew: ``python docs/pictures.py``, or some of them by name.

``gradients`` needs the files that ``make bench`` writes. ``noise`` takes the errors in ``images/noise.csv``; where that
file is not there, it registers 480 pairs first, which takes some minutes.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from p2plane import register, se3
from p2plane.data.pairs import PROTOCOLS, PairDataset
from p2plane.data.synthetic import SyntheticShapes
from p2plane.demo.scans import demo_scans
from p2plane.evaluation.metrics import rotation_error, translation_error
from p2plane.experiments.style import GRADIENT_LABELS, GRADIENTS, frame, legend_below, new_figure
from p2plane.methods import method
from p2plane.report import write_picture

IMAGES = Path(__file__).parent / "images"
ERRORS = IMAGES / "noise.csv"
BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "results"
METHODS = {"icp-plane": "#9a9a9a", "fgr": "#b58b5a", "ransac": "#3c3c3c", "register": "#0072b2", "tessera": "#c8102e"}
NOISES, PAIRS = (0.0, 0.01, 0.02, 0.04), 24
RIGHT_DEG, RIGHT_SHIFT = 5.0, 0.1


def demo() -> None:
    """Two scans of a room, before and after."""
    source, target, _ = demo_scans()
    result = register(source, target)
    write_picture(IMAGES / "demo.png", result, unit="m", up="z", azimuth=50.0, elevation=35.0)
    _with_few_colors(IMAGES / "demo.png")


def corridor() -> None:
    """A corridor, in which nothing says how far along it one is."""
    result = register(_corridor(1), _corridor(0))
    assert result.undetermined, "a corridor leaves a slide open"
    options: dict[str, Any] = {"unit": "m", "up": "z", "azimuth": 62.0, "elevation": 32.0, "pixels": 700}
    write_picture(IMAGES / "corridor.png", result, **options)
    _with_few_colors(IMAGES / "corridor.png")


def circle() -> None:
    """The plane case: an energy over (cos, sin), and the rotations as a circle in it."""
    H, free = np.array([[1.0, 0.55], [0.55, 0.6]]), np.array([0.15, 1.6])
    c = H @ free
    angles = np.linspace(0, 2 * math.pi, 3601)
    around = np.stack([np.cos(angles), np.sin(angles)])
    best = around[:, np.argmin(_energy(H, c, around))]
    start = free / np.linalg.norm(free)
    figure, panels = new_figure(1, 1, width=5.6, height=5.0)
    panel = panels[0, 0]
    x, y = np.meshgrid(np.linspace(-1.4, 1.9, 300), np.linspace(-1.3, 1.8, 300))
    panel.contour(
        x, y, _energy(H, c, np.stack([x, y])), levels=24, colors="#b9c3d0", linestyles="solid", linewidths=0.8
    )
    panel.plot(*around, color="#1b2430", lw=1.8, label="rotations")
    panel.plot(*np.stack([free, start], axis=1), "--", color="#e08e00", lw=1.5)
    panel.plot(*free, "o", color="#e08e00", ms=8, label="minimum without the constraint")
    panel.plot(*start, "s", color="#e08e00", ms=7, label="projected: the start")
    panel.plot(*best, "*", color="#0072b2", ms=15, label="minimum among rotations")
    tangent = np.array([-best[1], best[0]])
    ends = np.stack([best - 0.75 * tangent, best + 0.75 * tangent], axis=1)
    panel.plot(*ends, color="#0072b2", lw=1.2, label="tangent")
    panel.set_aspect("equal")
    frame(panel, "Energy over the plane of rotations and scalings", "cos", "sin")
    figure.legend(fontsize=8, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(IMAGES / "circle.png", dpi=110)


def gradients() -> None:
    """Error of the gradients at each noise, against auto-differentiation through enough iterations to converge."""
    with (BENCHMARK / "errors.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["reference"] == "converged" and row["input"] == "target"]
    noises = sorted({row["noise"] for row in rows}, key=float)
    figure, panels = new_figure(1, len(noises), width=3.6 * len(noises), height=3.3, sharey=True)
    for panel, noise in zip(panels[0], noises, strict=True):
        for gradient in ("exact", "penalty"):
            lines = [row for row in rows if (row["noise"], row["gradient"]) == (noise, gradient)]
            x, y = ([float(row[column]) for row in lines] for column in ("iterations", "relative_mse"))
            panel.plot(x, np.sqrt(y), "o-", ms=3, color=GRADIENTS[gradient], label=GRADIENT_LABELS[gradient])
        panel.set(yscale="log", xticks=(1, 5, 10, 15, 20))
        frame(panel, f"noise {noise}", "iterations of the solver", "relative error" if panel is panels[0, 0] else "")
    handles, _ = panels[0, 0].get_legend_handles_labels()
    legend_below(figure, handles)
    figure.savefig(IMAGES / "gradients.png", dpi=120)


def noise() -> None:
    """How far each method is off, and how often it is right, as noise grows; the errors are kept beside the picture."""
    if not ERRORS.is_file():
        measured = [(level, name, *errors) for level in NOISES for name in METHODS for errors in _errors(name, level)]
        with ERRORS.open("w", newline="") as file:
            csv.writer(file).writerows([("noise", "method", "degrees", "shift"), *measured])
    with ERRORS.open(newline="") as file:
        lines = list(csv.DictReader(file))
    rows = [(float(line["noise"]), line["method"], float(line["degrees"]), float(line["shift"])) for line in lines]
    figure, panels = new_figure(1, 2, width=9.0, height=3.4)
    for name, color in METHODS.items():
        errors = [np.array([row[2:] for row in rows if row[:2] == (level, name)]) for level in NOISES]
        right = [100 * np.mean((each < (RIGHT_DEG, RIGHT_SHIFT)).all(axis=1)) for each in errors]
        style: dict[str, Any] = {"color": color, "ls": "--" if name == "register" else "-", "marker": "o", "ms": 4}
        panels[0, 0].plot(NOISES, [np.median(each[:, 0]) for each in errors], label=name, **style)
        panels[0, 1].plot(NOISES, right, **style)
    panels[0, 0].set_yscale("log")
    panels[0, 0].set_yticks((0.5, 1, 2, 5), labels=("0.5", "1", "2", "5"))
    panels[0, 0].minorticks_off()
    panels[0, 1].set_ylim(-3, 103)
    for panel in panels[0]:
        panel.set_xticks(NOISES)
    unit = "noise, in units of a shape's radius"
    frame(panels[0, 0], f"Median error of {PAIRS} pairs", unit, "degrees")
    frame(panels[0, 1], f"Within {RIGHT_DEG:g} degrees and {RIGHT_SHIFT:g} of the radius", unit, "right, %")
    legend_below(figure, panels[0, 0].get_legend_handles_labels()[0])
    figure.savefig(IMAGES / "noise.png", dpi=110)


PICTURES: dict[str, Callable[[], None]] = {each.__name__: each for each in (demo, corridor, circle, gradients, noise)}


def _with_few_colors(path: Path) -> None:
    """A file a third as large that looks the same."""
    from PIL import Image

    Image.open(path).convert("RGB").quantize(96).save(path, optimize=True)


def _corridor(seed: int) -> torch.Tensor:
    """(N, 3) points of a floor and two walls along y, with noise, in a frame of their own."""
    random = torch.Generator().manual_seed(seed)

    def rectangle(corner: list[float], *sides: list[float]) -> torch.Tensor:
        shares = torch.rand(4000, 2, generator=random)
        return torch.tensor(corner) + shares @ torch.tensor(sides)

    floor = rectangle([0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 8.0, 0.0])
    left = rectangle([0.0, 0.0, 0.0], [0.0, 8.0, 0.0], [0.0, 0.0, 2.5])
    right = rectangle([2.0, 0.0, 0.0], [0.0, 8.0, 0.0], [0.0, 0.0, 1.2])
    points = torch.cat([floor, left, right]) + 0.005 * torch.randn(12000, 3, generator=random)
    twist = torch.tensor([0.1, -0.15, 0.3, 0.8, 1.5, 0.6]) * seed
    return se3.apply(se3.exp(twist), points)


def _energy(H: np.ndarray, c: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Energies of points (2, ...)."""
    return np.einsum("a...,ab,b...->...", g, H, g) - 2 * np.einsum("a,a...->...", c, g)


def _errors(name: str, level: float) -> list[tuple[float, float]]:
    """Degrees and shift by which each pair is off."""
    pairs = PairDataset(SyntheticShapes("test"), replace(PROTOCOLS["cpu-noisy"], noise=level))
    registrar, errors = method(name), []
    for index in range(PAIRS):
        pair = pairs[index * (len(pairs) // PAIRS)]
        clouds = [each[None] for each in (pair.source, pair.target, pair.source_normals, pair.target_normals)]
        with torch.no_grad():
            T = registrar(*clouds, generator=torch.Generator().manual_seed(index)).T_target_source[0].double()
        T_true = pair.T_target_source.double()
        off = rotation_error(T, T_true).rad2deg(), translation_error(T, T_true)
        errors.append((round(float(off[0]), 4), round(float(off[1]), 5)))
    return errors


if __name__ == "__main__":
    for wanted in sys.argv[1:] or PICTURES:
        PICTURES[wanted]()
