"""Clouds drawn into matplotlib's axes as surfaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from p2plane.data.cloud import Cloud
from p2plane.geometry import se3
from p2plane.geometry.normals import estimate_normals
from p2plane.report import colors
from p2plane.report.body import Body, body_of
from p2plane.report.screws import Screw, ring
from p2plane.report.splat import Window, splat
from p2plane.report.view import guess_up, view_rotation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FAINT = "#616b79"
_MARGIN = 1.06
_STRAY = 0.005  # part of the points on each side that may lie outside the picture,
_FAR_OUT = 1.3  # if it would have to be this much larger to show them
_REACH = 0.34  # half the length of an arrow


class Discs(NamedTuple):
    """What `splat` draws, in the target frame."""

    points: np.ndarray  # (N, 3)
    normals: np.ndarray  # (N, 3)
    colors: np.ndarray  # (N, 3)
    radii: np.ndarray  # (N,)


def draw_pair(
    axes: Axes,
    source: Cloud | Tensor | np.ndarray,
    target: Cloud | Tensor | np.ndarray,
    T_target_source: Tensor | np.ndarray | None = None,
    *,
    up: str | None = None,
    azimuth: float = 30.0,
    elevation: float = 25.0,
    pixels: int = 600,
) -> None:
    """Draw two clouds into axes, as surfaces of two colours; for galleries.

    Args:
        axes: of matplotlib; they lose their ticks and frame.
        source: a cloud or (N, 3) points; normals are estimated where there are none.
        target: likewise.
        T_target_source: (4, 4) pose that the source is drawn at; where it is not given, the source stays where it is.
        up: the axis that is upright, as in `write_page`.
        azimuth: from where the scene is seen, in degrees about that axis.
        elevation: and over the horizon.
        pixels: width of the image that is drawn.
    """
    clouds = [_with_normals(source), _with_normals(target)]
    if T_target_source is not None:
        clouds[0] = _moved(clouds[0], torch.as_tensor(T_target_source).detach().double().cpu())
    both = torch.cat([cloud.points for cloud in clouds])
    middle = both.mean(0).numpy() if len(both) else np.zeros(3)
    scale = (float((both.amax(0) - both.amin(0)).norm()) if len(both) else 0.0) or 1.0
    bodies = [body_of(cloud, torch.arange(len(cloud)), middle, scale) for cloud in clouds]
    rotation = view_rotation(up or guess_up(bodies[1].points), azimuth, elevation)
    discs = joined(plain(bodies[0], colors.SOURCE), plain(bodies[1], colors.TARGET))
    draw_discs(axes, discs, rotation, window_around(discs, rotation), pixels)


def plain(body: Body, color: str) -> Discs:
    """A body in one colour."""
    count = len(body.points)
    return Discs(body.points, body.normals, np.tile(colors.rgb(color), (count, 1)), np.full(count, body.radius))


def joined(*parts: Discs) -> Discs:
    """All discs together."""
    return Discs(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def window_around(discs: Discs, rotation: np.ndarray, aspect: float = 1.0) -> Window:
    """The smallest window of an aspect (width by height) that shows all but a few stray points."""
    if len(discs.points) == 0:
        return Window(0.0, 0.0, 1.0, 1.0 / aspect)
    seen = discs.points @ rotation[:2].T
    (lowest, low), (high, highest) = np.quantile(seen, [[0.0, _STRAY], [1 - _STRAY, 1.0]], axis=0)
    if ((highest - lowest) <= _FAR_OUT * (high - low)).all():
        low, high = lowest, highest
    x, y = (low + high) / 2
    width, height = (high - low) * _MARGIN + 2 * discs.radii.max()
    width = max(width, height * aspect, 1e-6)
    return Window(float(x), float(y), float(width), float(width / aspect))


def draw_discs(axes: Axes, discs: Discs, rotation: np.ndarray, window: Window, pixels: int) -> None:
    """Draw discs into axes, whose coordinates become those of the eye's plane."""
    image = splat(discs.points @ rotation.T, discs.normals @ rotation.T, discs.colors, discs.radii, window, pixels)
    left, bottom = window.x - window.width / 2, window.y - window.height / 2
    axes.imshow(image, extent=(left, left + window.width, bottom, bottom + window.height), interpolation="antialiased")
    axes.set_axis_off()


def draw_scale(axes: Axes, window: Window, scale: float, unit: str, font: float) -> None:
    """Draw a bar of a round length at the lower right."""
    wanted = 0.22 * window.width * scale
    power = 10.0 ** np.floor(np.log10(wanted))
    round_length = max(digit * power for digit in (1, 2, 5) if digit * power <= wanted)
    right, y = window.x + 0.48 * window.width, window.y - 0.47 * window.height
    left = right - round_length / scale
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=3, foreground="white")]
    axes.plot([left, right], [y, y], color=FAINT, linewidth=1.4, solid_capstyle="butt", path_effects=halo)
    axes.annotate(
        f"{round_length:.6g} {unit}".strip(),
        ((left + right) / 2, y),
        xytext=(0, 3),
        textcoords="offset points",
        ha="center",
        color=FAINT,
        fontsize=font,
        path_effects=halo,
    )


def draw_screw(axes: Axes, screw: Screw, rotation: np.ndarray) -> None:
    """Draw an open direction: a straight arrow to slide along, a ring to turn about."""
    if screw.slide != 0:
        ends = screw.point + np.array([[-1.0], [1.0]]) * max(_REACH * abs(screw.slide), 0.12) * screw.axis
        _arrow(axes, ends @ rotation[:2].T)
    if screw.turn > 0:
        _arrow(axes, ring(screw) @ rotation[:2].T)


def _arrow(axes: Axes, path: np.ndarray) -> None:
    """A line with a head at either end."""
    axes.plot(*path.T, color=colors.OPEN, linewidth=2.0, solid_capstyle="butt")
    for tip, before in ((path[0], path[1]), (path[-1], path[-2])):
        way = (tip - before) / max(np.linalg.norm(tip - before), 1e-9)
        style = {"arrowstyle": "-|>,head_width=0.3,head_length=0.6", "color": colors.OPEN, "linewidth": 2.0}
        axes.annotate("", tip + 0.035 * way, tip, arrowprops=style | {"shrinkA": 0, "shrinkB": 0})


def _with_normals(cloud: Cloud | Tensor | np.ndarray) -> Cloud:
    cloud = cloud if isinstance(cloud, Cloud) else Cloud(torch.as_tensor(cloud))
    points = cloud.points.detach().double().cpu()
    normals = estimate_normals(points).normals if cloud.normals is None else cloud.normals.detach().double().cpu()
    return Cloud(points, normals)


def _moved(cloud: Cloud, T_target_source: Tensor) -> Cloud:
    assert cloud.normals is not None
    return Cloud(se3.apply(T_target_source, cloud.points), se3.rotate(T_target_source, cloud.normals))
