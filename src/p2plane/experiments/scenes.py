"""Pairs of clouds as small pictures in a figure."""

from __future__ import annotations

from typing import Any

import numpy as np

from p2plane.experiments.folder import Clouds
from p2plane.experiments.style import new_figure

MOST_PIXELS, FEWEST_PIXELS = 300, 100


def scene_figure(rows: int, columns: int, *, size: float = 2.0, label_width: float = 0.0) -> tuple[Any, Any]:
    """A figure of pictures, and its panels (rows, columns)."""
    return new_figure(rows, columns, width=size * columns + label_width, height=(size + 0.25) * rows + 0.45)


def show_pair(panel: Any, clouds: Clouds, T_target_source: np.ndarray | None, title: str = "") -> None:
    """Draw the source, moved where a motion is given, and the target."""
    from p2plane.report import draw_pair

    T = np.eye(4) if T_target_source is None else np.asarray(T_target_source)
    draw_pair(panel, clouds.source @ T[:3, :3].T + T[:3, 3], clouds.target)
    if title:
        panel.set_title(title, fontsize=9)
