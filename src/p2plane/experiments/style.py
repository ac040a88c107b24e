"""How figures look: one colour for each network, dashes for the point head, and the same frame everywhere."""

from __future__ import annotations

from typing import Any

from p2plane.experiments.rows import METHOD, Row

COLORS = {
    "dcp-v2": "#0072b2",
    "prnet": "#e08e00",
    "rpmnet": "#c8102e",
    "dcp-v1": "#56b4e9",
    "deepgmr": "#009e73",
    "pointnetlk": "#8c6bb1",
    "icp": "#9a9a9a",
    "go-icp": "#6f6f6f",
    "fgr": "#b58b5a",
    "ransac-10k": "#3c3c3c",
}
GRADIENTS = {"exact": "#0072b2", "penalty": "#e08e00", "unrolled": "#555555"}
GRADIENT_LABELS = {"exact": "exact (ours)", "penalty": "penalty (the paper's)", "unrolled": "auto-differentiation"}
MARKERS = {"dcp-v2": "o", "prnet": "^", "rpmnet": "s"}


def network_of(row: Row) -> str:
    """The name of a row without its head."""
    return row.name.removesuffix("-published").removesuffix("-ours").removesuffix("-point").removesuffix("-plane")


def color_of(row: Row) -> str:
    """The colour of a row."""
    return COLORS[network_of(row)]


def dashes_of(row: Row) -> str:
    """Dashes for networks with the point head that has a rival, dots for what needs no training, else a line."""
    if row.kind == METHOD:
        return ":"
    return "--" if row.name.endswith("-point") else "-"


def new_figure(rows: int = 1, columns: int = 1, *, width: float = 10.0, height: float = 3.6, **options: Any) -> Any:
    """A matplotlib figure and its panels (rows, columns)."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'p2plane[view]'") from error
    figure = Figure(figsize=(width, height), layout="constrained")  # no global state, no window
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def frame(panel: Any, title: str, x: str, y: str) -> None:
    """Titles and a light frame."""
    panel.set_title(title, fontsize=10)
    panel.set_xlabel(x, fontsize=9)
    panel.set_ylabel(y, fontsize=9)
    panel.tick_params(labelsize=8)
    panel.grid(alpha=0.25)
    panel.spines[["top", "right"]].set_visible(False)


def legend_below(figure: Any, handles: list[Any], columns: int | None = None) -> None:
    """One legend for all panels, under them."""
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns or len(handles), frameon=False, fontsize=8.5
    )
