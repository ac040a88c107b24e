"""A picture of the map from above, with the way through it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from p2plane.data.io import replacing
from p2plane.odometry.trajectory import Trajectory
from p2plane.report import colors
from p2plane.report.drawing import draw_scale
from p2plane.report.picture import new_figure
from p2plane.report.splat import Window
from p2plane.report.view import guess_up, view_rotation

_MARGIN, _STRAY = 1.08, 0.002
_DPI = 150
_INK = "#1b2430"
_BINS = 450  # along the longer side


def write_map_picture(
    path: str | os.PathLike[str], trajectory: Trajectory, *, up: str | None = None, unit: str = "", pixels: int = 1200
) -> None:
    """Write the map as seen from above, darker where more lies on top of each other, so that walls stand out.

    It needs matplotlib: ``pip install 'p2plane[view]'``.

    Args:
        path: of a PNG file.
        trajectory: what `odometry` returned.
        up: the upright axis of the first scan: x, y, z, -x, -y or -z; by default that along which the map is flat.
        unit: of the lengths, such as "m".
        pixels: width and height.
    """
    if Path(path).suffix.lower() != ".png":
        raise ValueError(f"path must end with .png, got {str(path)!r}")
    points, way = trajectory.map.numpy(), trajectory.poses[:, :3, 3].numpy()
    plane = view_rotation(up or guess_up(points), -90.0, 90.0)[:2]
    seen, walked = points @ plane.T, way @ plane.T
    window = _window(seen, walked)
    side = pixels / _DPI
    figure = new_figure(figsize=(side, side), dpi=_DPI, facecolor="white")
    axes = figure.add_axes((0.02, 0.02, 0.96, 0.92))
    left, bottom = window.x - window.width / 2, window.y - window.height / 2
    extent = (left, left + window.width, bottom, bottom + window.height)
    axes.imshow(_density(seen, extent), extent=extent, origin="lower", cmap="Greys", vmin=0, vmax=1)
    axes.plot(*walked.T, color=colors.SOURCE, linewidth=1.8)
    unsure = np.array([not step.confident for step in trajectory.steps])
    axes.plot(*walked[unsure].T, "o", color=colors.OPEN, markersize=4)
    axes.plot(*walked[0], "o", color=colors.TARGET, markersize=8)
    axes.plot(*walked[-1], "s", color=colors.TARGET, markersize=8)
    draw_scale(axes, window, 1.0, unit, 9.0)
    axes.set(xlim=extent[:2], ylim=extent[2:])
    axes.set_axis_off()
    axes.set_title(_caption(trajectory, int(unsure.sum()), unit), fontsize=10, color=_INK)
    with replacing(Path(path)) as file:
        figure.savefig(file, format="png")


def _caption(trajectory: Trajectory, unsure: int, unit: str) -> str:
    way = trajectory.poses[:, :3, 3]
    length = float((way[1:] - way[:-1]).norm(dim=-1).sum())
    doubts = f", {unsure} steps not confident (dots)" if unsure else ""
    return f"{len(trajectory)} scans, {f'{length:.4g} {unit}'.strip()} from circle to square{doubts}"


def _window(seen: np.ndarray, walked: np.ndarray) -> Window:
    """A square about all but a few stray points, and the whole way."""
    low, high = np.quantile(seen, [_STRAY, 1 - _STRAY], axis=0)
    low, high = np.minimum(low, walked.min(0)), np.maximum(high, walked.max(0))
    side = float((high - low).max()) * _MARGIN or 1.0
    x, y = (low + high) / 2
    return Window(float(x), float(y), side, side)


def _density(seen: np.ndarray, extent: tuple[float, float, float, float]) -> np.ndarray:
    """(H, W) in [0, 1] how many points (N, 2) lie behind each other, on a scale of logarithms."""
    left, right, bottom, top = extent
    counts, _, _ = np.histogram2d(seen[:, 1], seen[:, 0], bins=_BINS, range=((bottom, top), (left, right)))
    occupied = counts[counts > 0]
    most = np.quantile(occupied, 0.98) if len(occupied) else 1.0
    return (np.log1p(counts) / np.log1p(most)).clip(0, 1) * 0.85
