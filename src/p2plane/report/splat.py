"""Discs that lie in the surface, drawn into an image: what the page draws with WebGL, with NumPy."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

_LIGHT = np.array([-0.3, 0.45, 0.85]) / np.linalg.norm([-0.3, 0.45, 0.85])
_DEPTH_LEVELS = 1 << 31
_STEEPEST = 0.3  # a disc seen more from the side than this is drawn as if it were seen so
_LARGEST = 64.0  # pixels
_NOTHING = -1e6  # depth of the background
_EDGE = 0.012  # how far in front a neighbour may count, in parts of the image's width


class Window(NamedTuple):
    """The part of the eye's plane that an image shows."""

    x: float
    """Of the middle."""
    y: float
    width: float
    height: float


def splat(
    points: np.ndarray, normals: np.ndarray, colors: np.ndarray, radii: np.ndarray, window: Window, pixels: int
) -> np.ndarray:
    """An image (H, W, 4) of discs, RGBA in [0, 1]: lit by their normals, nearer ones before others, edges darkened.

    Args:
        points: (N, 3) for the eye: right, up, towards the eye.
        normals: (N, 3) likewise, either sign, zero where there are none.
        colors: (N, 3) in [0, 1].
        radii: (N,) of the discs.
        window: what to show, seen from far away.
        pixels: width of the image; every one is the mean of four.
    """
    width, height = 2 * pixels, 2 * max(1, round(pixels * window.height / window.width))
    unit = window.width / width
    within = _within(points, radii, window)
    points, normals, colors, radii = points[within], normals[within], colors[within], radii[within]
    normals = np.where(normals[:, 2:] < 0, -normals, normals)
    owner, depth = _nearest(points, normals, np.maximum(radii, 0.75 * unit), window, unit, (height, width))
    lit = (colors * _shades(normals)[:, None]).astype(np.float32)
    seen = owner >= 0
    image = np.zeros((height * width, 4), dtype=np.float32)
    image[seen, :3] = lit[owner[seen]]
    image[seen, 3] = 1
    image[:, :3] *= _edges(depth.reshape(height, width) / window.width).reshape(-1, 1)
    return _halved(image.reshape(height, width, 4))


def _within(points: np.ndarray, radii: np.ndarray, window: Window) -> np.ndarray:
    """(N,) which discs can be seen."""
    right, up = np.abs(points[:, :2] - (window.x, window.y)).T
    return (right <= window.width / 2 + radii) & (up <= window.height / 2 + radii)


def _shades(normals: np.ndarray) -> np.ndarray:
    """(N,) light on each disc."""
    lengths = np.linalg.norm(normals, axis=-1)
    return np.where(lengths < 0.5, 0.92, 0.76 + 0.28 * np.maximum(normals @ _LIGHT, 0)).clip(0, 1)


def _nearest(
    points: np.ndarray,
    normals: np.ndarray,
    radii: np.ndarray,
    window: Window,
    unit: float,
    shape: tuple[int, int],
) -> tuple[np.ndarray, np.ndarray]:
    """(H W,) which disc each pixel shows, -1 for none, and how near it is there.

    Depth and disc share one integer, so that one maximum finds both.
    """
    height, width = shape
    sizes = (radii / unit).clip(0, _LARGEST).astype(np.float32)
    order = np.argsort(-sizes)  # the largest first, so that every offset concerns the first few
    sizes, points, normals = sizes[order], points[order], normals[order]
    x = ((points[:, 0] - window.x) / unit + width / 2).astype(np.float32)
    y = ((window.y - points[:, 1]) / unit + height / 2).astype(np.float32)
    tilt_x, tilt_y = (normals[:, :2] / np.maximum(normals[:, 2:], _STEEPEST)).T.astype(np.float32)
    far = points[:, 2].min(initial=0) - radii.max(initial=0)
    step = max(points[:, 2].max(initial=0) + radii.max(initial=0) - far, 1e-9) / (_DEPTH_LEVELS - 2)
    level, rise_levels = (points[:, 2] - far) / step, sizes * (unit / step)
    column, row = np.floor(x).astype(np.int64), np.floor(y).astype(np.int64)
    from_x, from_y = column + np.float32(0.5) - x, y - row - np.float32(0.5)
    keys = np.full(height * width, -1, dtype=np.int64)
    reach = int(np.ceil(sizes.max(initial=0)))
    for down, across in product(range(-reach, reach + 1), repeat=2):
        few = int(np.searchsorted(-sizes, 1 - np.hypot(down, across), side="right"))
        right, up = (from_x[:few] + across) / sizes[:few], (from_y[:few] - down) / sizes[:few]
        rise = -(tilt_x[:few] * right + tilt_y[:few] * up)
        which = np.flatnonzero(right * right + up * up + rise * rise <= 1)
        rows, columns = row[which] + down, column[which] + across
        inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
        which, places = which[inside], (rows * width + columns)[inside]
        levels = (level[which] + rise[which] * rise_levels[which]).clip(0, _DEPTH_LEVELS - 1).astype(np.int64)
        np.maximum.at(keys, places, (levels << 32) | order[which])
    owner = np.where(keys < 0, -1, keys & 0xFFFFFFFF)
    return owner, np.where(keys < 0, _NOTHING, (keys >> 32) * step + far).astype(np.float32)


def _edges(depth: np.ndarray) -> np.ndarray:
    """(H, W) factors that darken a pixel the more its neighbours stand before it."""
    padded = np.pad(depth, 2, constant_values=_NOTHING)
    hidden = np.zeros_like(depth)
    height, width = depth.shape
    for row, column in ((-2, 0), (2, 0), (0, -2), (0, 2), (-1, -1), (-1, 1), (1, -1), (1, 1)):
        hidden += (padded[2 + row : 2 + row + height, 2 + column : 2 + column + width] - depth).clip(0, _EDGE)
    return np.exp(-10 * hidden)


def _halved(image: np.ndarray) -> np.ndarray:
    """Every pixel the mean of four, with colours that do not fade into the background."""
    height, width, _ = image.shape
    mean = image.reshape(height // 2, 2, width // 2, 2, 4).mean(axis=(1, 3))
    mean[..., :3] /= np.maximum(mean[..., 3:], 1e-6)
    return mean
