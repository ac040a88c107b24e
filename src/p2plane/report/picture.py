"""Pictures of a registration for papers and terminals, drawn with matplotlib."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from p2plane.data.io import replacing
from p2plane.registration.result import Registration
from p2plane.report import colors
from p2plane.report.drawing import (
    Discs,
    draw_discs,
    draw_scale,
    draw_screw,
    joined,
    plain,
    window_around,
)
from p2plane.report.panel import length
from p2plane.report.scene import Scene, scene_of
from p2plane.report.splat import Window
from p2plane.report.view import guess_up, view_rotation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = ("before", "after", "distance", "closeup")
ENDINGS = (".png", ".pdf", ".svg")
_MAX_POINTS = 200_000
_CLOSER = 4.0  # how much a close-up enlarges
_ASPECT = 1.15  # width of a panel by its height
_GAP = 0.02  # beside a panel, in parts of its width
_DPI = 200
_INK = "#1b2430"


def write_picture(
    path: str | os.PathLike[str],
    registration: Registration,
    *,
    panels: Sequence[str] = ("before", "after"),
    title: str = "",
    source_name: str = "source",
    target_name: str = "target",
    unit: str = "",
    up: str | None = None,
    azimuth: float = 30.0,
    elevation: float = 25.0,
    pixels: int = 900,
) -> None:
    """Write a picture of both clouds, before and after, on white.

    The file appears complete or not at all. It needs matplotlib: ``pip install 'p2plane[view]'``.

    Args:
        path: of the file; its name ends with one of `ENDINGS`.
        registration: what `register` returned.
        panels: some of `PANELS`, from left to right: "distance" colours the source by its distances to the target
            after, "closeup" shows the middle of the overlap four times larger.
        title: over the picture.
        source_name: what to call the source.
        target_name: what to call the target.
        unit: of the target's lengths, such as "m".
        up: the target's axis that is upright, as in `write_page`.
        azimuth: from where the scene is seen, in degrees about that axis.
        elevation: and over the horizon.
        pixels: width of each panel.
    """
    _refuse(Path(path), panels, pixels)
    scene = scene_of(registration, max_points=_MAX_POINTS)
    rotation = view_rotation(up or guess_up(scene.target.points), azimuth, elevation)
    painter = _Painter(scene, registration, rotation, unit, pixels)
    figure = painter.figure(tuple(panels), title, (source_name, target_name))
    with replacing(Path(path)) as file:
        figure.savefig(file, format=Path(path).suffix[1:].lower())


def _refuse(path: Path, panels: Sequence[str], pixels: int) -> None:
    if path.suffix.lower() not in ENDINGS:
        raise ValueError(f"path must end with one of {ENDINGS}, got {str(path)!r}")
    if path.is_dir():
        raise IsADirectoryError(f"path must name a file, but {path} is a folder")
    if isinstance(panels, str) or not panels or not set(panels) <= set(PANELS):
        raise ValueError(f"panels must be some of {PANELS}, got {panels!r}")
    if pixels < 100:
        raise ValueError(f"pixels must be at least 100, got {pixels}")


@dataclass(frozen=True)
class _Painter:
    scene: Scene
    registration: Registration
    rotation: np.ndarray
    unit: str
    pixels: int

    def figure(self, panels: tuple[str, ...], title: str, names: tuple[str, str]) -> Figure:
        """Panels side by side, a title over them and a key below."""
        side = self.pixels / _DPI
        tall = (1 - 2 * _GAP) * side / _ASPECT
        top, bottom = (0.175 if title else 0.11) * side, 0.1 * side
        height = tall + top + bottom
        figure = new_figure(figsize=(side * len(panels), height), dpi=_DPI, facecolor="white")
        for number, panel in enumerate(panels):
            left, wide = (number + _GAP) / len(panels), (1 - 2 * _GAP) / len(panels)
            self._panel(figure.add_axes((left, bottom / height, wide, tall / height)), panel)
        if title:
            text = figure.text(0.5, 1 - 0.035 * side / height, title, ha="center", va="top", parse_math=False)
            text.set(color=_INK, fontsize=1.25 * self.font)
        _key(figure, names, self.font, bottom / 2 / height, side * len(panels))
        return figure

    @property
    def font(self) -> float:
        """Size of ordinary text, in points; it grows with the picture."""
        return 9.0 * self.pixels / 900

    def _panel(self, axes: Axes, panel: str) -> None:
        discs = self._discs(panel)
        window = window_around(discs, self.rotation, _ASPECT)
        if panel == "closeup":
            x, y = self.rotation[:2] @ self.scene.focus
            window = Window(float(x), float(y), window.width / _CLOSER, window.height / _CLOSER)
        draw_discs(axes, discs, self.rotation, window, self.pixels)
        draw_scale(axes, window, self.scene.scale, self.unit, 0.8 * self.font)
        if panel == "after":
            self._open_directions(axes)
        axes.set_xlim(window.x - window.width / 2, window.x + window.width / 2)
        axes.set_ylim(window.y - window.height / 2, window.y + window.height / 2)
        axes.set_title(self._caption(panel), fontsize=self.font, color=_INK, pad=0.4 * self.font)

    def _open_directions(self, axes: Axes) -> None:
        for screw in self.scene.screws:
            draw_screw(axes, screw, self.rotation)
        words = fill("; ".join(self.registration.undetermined), 48)
        axes.text(0.01, 0.02, words, transform=axes.transAxes, color=colors.OPEN, fontsize=0.8 * self.font)

    def _discs(self, panel: str) -> Discs:
        source, target = plain(self.scene.source, colors.SOURCE), plain(self.scene.target, colors.TARGET)
        points, normals = self.scene.moved_source(0.0 if panel == "before" else 1.0)
        source = source._replace(points=points, normals=normals)
        if panel != "distance":
            return joined(source, target)
        behind = 2 * self.scene.source.radius * self.rotation[2]
        return joined(
            source._replace(colors=colors.mapped(self.scene.residuals / self.scene.limit)),
            plain(self.scene.target, colors.UNMATCHED)._replace(points=target.points - behind),
        )

    def _caption(self, panel: str) -> str:
        result, rmse = self.registration, length(self.registration.plane_rmse, self.unit)
        return {
            "before": "before",
            "after": f"after: fitness {result.fitness:.1%}, plane RMSE {rmse}",
            "distance": f"distance to the partner's plane, yellow from {length(self.scene.limit, self.unit)} on",
            "closeup": f"after, {_CLOSER:.0f} times larger",
        }[panel]


def _key(figure: Figure, names: tuple[str, str], font: float, y: float, width: float) -> None:
    """Names of the clouds beside dots of their colours."""
    texts = []
    for name, color in zip(names, (colors.SOURCE, colors.TARGET), strict=True):
        texts += [("●", color), (name, _INK)]
    # A letter is about 0.55 of the font's size wide.
    widths = [0.55 * font * (len(text) + (1.2 if text == "●" else 2.4)) / 72 / width for text, _ in texts]
    x = 0.5 - sum(widths) / 2
    for (text, color), room in zip(texts, widths, strict=True):
        figure.text(x, y, text, color=color, fontsize=font, va="center", parse_math=False)
        x += room


def new_figure(**settings: Any) -> Figure:
    """A figure of matplotlib, or what to do to have one."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("pictures need the module matplotlib: pip install 'p2plane[view]'") from error
    return Figure(**settings)
