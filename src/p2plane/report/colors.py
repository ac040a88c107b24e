"""The colours of the page and of the pictures, told apart by colour-blind readers too."""

from __future__ import annotations

import numpy as np

SOURCE = "#f08a1c"
TARGET = "#3a7fc4"
OPEN = "#c2258f"
"""Of the arrows along undetermined directions."""
UNMATCHED = "#a3a9b2"
"""Of points without a partner, and of the target where the source is coloured by distance."""
MAP = ("#440154", "#472c7a", "#3b518b", "#2c718e", "#21908d", "#27ad81", "#5cc863", "#aadc32", "#fde725")
"""Evenly spaced colours of viridis: equal steps look equal, and its lightness alone tells the order."""


def rgb(color: str) -> np.ndarray:
    """(3,) red, green, blue in [0, 1] of "#rrggbb"."""
    return np.array([int(color[first : first + 2], 16) for first in (1, 3, 5)]) / 255


def mapped(values: np.ndarray) -> np.ndarray:
    """(N, 3) colours of numbers in [0, 1]; NaN is `UNMATCHED`."""
    stops = np.stack([rgb(color) for color in MAP])
    places = np.nan_to_num(values).clip(0, 1) * (len(stops) - 1)
    colors = np.stack([np.interp(places, np.arange(len(stops)), channel) for channel in stops.T], axis=-1)
    return np.where(np.isnan(values)[:, None], rgb(UNMATCHED), colors)
