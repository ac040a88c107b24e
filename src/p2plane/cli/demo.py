"""`p2plane demo`: register the two scans that come with the package, and show them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from p2plane.cli.outputs import make_folder


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page and the picture.")] = Path("p2plane-demo"),
    seed: Annotated[int, typer.Option(help="Of what is random.")] = 0,
) -> None:
    """Register two scans of a room and show the result."""
    from p2plane.cli.tables import console, print_registration
    from p2plane.demo.scans import demo_scans
    from p2plane.geometry import so3
    from p2plane.registration.pipeline import register
    from p2plane.report import write_page, write_picture

    source, target, T_true = demo_scans()
    make_folder(out)
    result = register(source, target, seed=seed)
    print_registration(result, source.name, target.name)
    angle = math.degrees(float(so3.log(result.R @ T_true[:3, :3].mT).norm()))
    center = result.source.points.mean(0)
    shift = float((result.R @ center + result.t - T_true[:3, :3] @ center - T_true[:3, 3]).norm())
    turned = math.degrees(float(so3.log(T_true[:3, :3]).norm()))
    console().print(
        f"The true motion turns by {turned:.0f} degrees; this is {angle:.2f} degrees and {shift * 1000:.0f} mm from it."
    )
    title, azimuth, elevation = "Two scans of a room", 50.0, 35.0
    write_page(out / "page.html", result, title=title, unit="m", up="z", azimuth=azimuth, elevation=elevation)
    console().print(f"To look at, in any browser: {out / 'page.html'}")
    try:
        write_picture(out / "picture.png", result, unit="m", up="z", azimuth=azimuth, elevation=elevation)
        console().print(f"As a picture: {out / 'picture.png'}")
    except ImportError as error:
        console().print(f"No picture: {error}", markup=False)
