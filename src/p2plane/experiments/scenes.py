"""Pairs of clouds as small pictures in a figure."""

from __future__ import annotations

from typing import Any

import numpy as np

from p2plane.experiments.folder import Clouds
from p2plane.experiments.style import new_figure

MOST_PIXELS, FEWEST_PIXELS = 300, 100


def scene_figure(rows: int, columns: int, *, size: float = 2.0) -> tuple[Any, Any]:
    """A figure of pictures, and its panels (rows, columns)."""
    figure, panels = new_figure(rows, columns, width=size * columns, height=(size + 0.25) * rows + 0.45)
    for panel in panels.flat:
        panel.set_axis_off()
    return figure, panels


def show_pair(panel: Any, clouds: Clouds, T_target_source: np.ndarray | None, title: str = "") -> None:
    """Draw the source, moved where a motion is given, and the target."""
    from p2plane.report import draw_pair

    pixels = int(np.clip(len(clouds.source), FEWEST_PIXELS, MOST_PIXELS))  # few points are large discs, which take time
    draw_pair(panel, clouds.source, clouds.target, T_target_source, pixels=pixels)
    if title:
        panel.set_title(title, fontsize=9)
