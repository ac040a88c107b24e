"""One HTML file that shows a registration: both clouds in 3D, and the numbers beside them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Mapping
from html import escape
from importlib import resources
from pathlib import Path

import numpy as np
import torch

import p2plane
from p2plane.data.io import replacing
from p2plane.geometry import so3
from p2plane.registration.result import Registration
from p2plane.report import colors
from p2plane.report.body import Body
from p2plane.report.panel import panel
from p2plane.report.scene import Scene, scene_of
from p2plane.report.view import guess_up, view_rotation

MAX_POINTS = 200_000
_SCRIPTS = ("glyphs.js", "renderer.js", "camera.js", "controls.js", "viewer.js")
_NO_DISTANCE = 255


def write_page(
    path: str | os.PathLike[str],
    registration: Registration,
    *,
    title: str = "Registration",
    source_name: str = "source",
    target_name: str = "target",
    unit: str = "",
    settings: Mapping[str, object] | None = None,
    up: str | None = None,
    azimuth: float = 30.0,
    elevation: float = 25.0,
    max_points: int = MAX_POINTS,
) -> None:
    """Write a page that shows a registration; it opens in any browser, without a network.

    The file appears complete or not at all, in place of one that may be there.

    Args:
        path: of the file, such as "page.html".
        registration: what `register` returned.
        title: of the page.
        source_name: what to call the source.
        target_name: what to call the target.
        unit: of the target's lengths, such as "m"; left out where it is not given.
        settings: to be listed on the page, by name.
        up: the target's axis that is upright at first: "x", "y", "z", "-x", "-y" or "-z"; guessed where it is not
            given: the axis along which the target lies flat, or z.
        azimuth: from where the scene is seen at first, in degrees about that axis.
        elevation: and over the horizon.
        max_points: of both clouds together; of larger clouds a random part is drawn, and the page says so.
    """
    if max_points < 1:
        raise ValueError(f"max_points must be at least 1, got {max_points}")
    if Path(path).is_dir():
        raise IsADirectoryError(f"path must name a file, but {path} is a folder")
    scene = scene_of(registration, max_points=max_points)
    view = view_rotation(up or guess_up(scene.target.points), azimuth, elevation)
    names = (source_name, target_name)
    data = _data(scene, names, registration, unit, view)
    page = _page(title, names, panel(registration, unit=unit, settings=settings), data)
    with replacing(Path(path)) as file:
        file.write(page.encode())


def _page(title: str, names: tuple[str, str], numbers: str, data: dict) -> str:
    style = _fill(_asset("style.css"), {"source": colors.SOURCE, "target": colors.TARGET, "open": colors.OPEN})
    script = '"use strict";\n' + "\n".join(_asset(name) for name in _SCRIPTS)
    policy = f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {_digest(script)}"
    parts = {
        "policy": policy,
        "title": escape(title),
        "source": escape(names[0]),
        "target": escape(names[1]),
        "style": style,
        "panel": numbers,
        "version": p2plane.__version__,
        "note": escape(_note(data)),
        "scene": _json(data),
        "script": script,
    }
    return _fill(_asset("page.html"), parts)


def _asset(name: str) -> str:
    return (resources.files("p2plane.report") / "viewer" / name).read_text(encoding="utf-8")


def _fill(template: str, parts: Mapping[str, str]) -> str:
    """The template with every {{name}} replaced, in one pass: what is filled in is not looked at again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _digest(text: str) -> str:
    """What the page's policy knows a script or a style by, so that no other one runs."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _json(data: dict) -> str:
    """JSON that may stand inside a script element: no "<" can end the element or begin a comment."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _note(data: dict) -> str:
    drawn = sum(cloud["count"] for cloud in data["clouds"])
    total = sum(cloud["total"] for cloud in data["clouds"])
    points = f"All {total:,} points are drawn." if drawn == total else f"{drawn:,} of {total:,} points are drawn."
    closer = " Before, the clouds are farther apart than drawn." if data["closer"] else ""
    return points + closer


def _data(scene: Scene, names: tuple[str, str], registration: Registration, unit: str, view: np.ndarray) -> dict:
    """What the script needs to draw."""
    shares = (scene.residuals / scene.limit).clip(0, 1)
    levels = np.where(np.isnan(shares), _NO_DISTANCE, np.nan_to_num(shares * (_NO_DISTANCE - 1)).round())
    return {
        "clouds": [
            _cloud(scene.source, names[0], colors.SOURCE) | {"distances": _packed(levels, "u1")},
            _cloud(scene.target, names[1], colors.TARGET),
        ],
        "motion": _motion(scene),
        "pairs": {
            "source": _packed(scene.pairs.source, "<f4"),
            "target": _packed(scene.pairs.target, "<f4"),
            "weights": _packed(scene.pairs.weights * 255, "u1"),
            "total": scene.pairs.total,
        },
        "screws": _screws(scene, registration),
        "view": view.flatten().tolist(),
        "scale": scene.scale,
        "unit": unit,
        "limit": scene.limit,
        "closer": scene.brought_closer,
        "map": [colors.rgb(color).tolist() for color in colors.MAP],
        "unmatched": colors.rgb(colors.UNMATCHED).tolist(),
    }


def _cloud(body: Body, name: str, color: str) -> dict:
    extent = np.abs(body.points).max(axis=0, initial=1e-6)
    return {
        "name": name,
        "color": colors.rgb(color).tolist(),
        "count": len(body.points),
        "total": body.total,
        "radius": body.radius,
        "extent": extent.tolist(),
        "positions": _packed(np.rint(body.points / extent * 32767), "<i2"),
        "normals": _packed(np.rint(body.normals * 127), "i1"),
        "colors": None if body.colors is None else _packed(body.colors, "u1"),
    }


def _motion(scene: Scene) -> dict:
    omega = so3.log(torch.from_numpy(scene.R))
    return {"omega": omega.tolist(), "before": scene.before.tolist(), "after": scene.after.tolist()}


def _screws(scene: Scene, registration: Registration) -> list[dict]:
    words = [word.split(" through ")[0] for word in registration.undetermined]
    labels = words if len(words) == len(scene.screws) else [""] * len(scene.screws)
    return [
        shape._asdict() | {"point": shape.point.tolist(), "axis": shape.axis.tolist(), "label": label}
        for shape, label in zip(scene.screws, labels, strict=True)
    ]


def _packed(array: np.ndarray, kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(array).astype(kind).tobytes()).decode()
