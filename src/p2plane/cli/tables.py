"""Tables for people."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from p2plane.data.cloud import Cloud
    from p2plane.registration.result import Registration


def console() -> Console:
    """Standard output; plain where it is not a terminal."""
    return Console(highlight=False, soft_wrap=True)


def print_registration(result: Registration, source_name: str, target_name: str) -> None:
    """The pose, how well it fits, and every reservation."""
    from p2plane.registration.summary import summary

    values = summary(result)
    out = console()
    verdict = Text("confident", "bold green") if result.confident else Text("not confident", "bold yellow")
    out.print(Text.assemble(f"{source_name} onto {target_name}: ", verdict, f" ({result.confidence:.0%})"))
    for row in result.T_target_source.tolist():
        out.print("  " + " ".join(f"{entry:12.6f}" for entry in row))
    table = Table(show_header=False, box=None, pad_edge=True)
    for name, value in (
        ("motion", f"{values['angle_deg']:.2f} degrees, {values['translation']:.4g} along"),
        ("one sigma, by halves", _uncertainty(values["spread_angle_deg"], values["spread_center"])),
        ("one sigma, noise alone", _uncertainty(values["sigma_angle_deg"], values["sigma_center"])),
        ("source with a partner", f"{result.fitness:.1%} within {result.inlier_distance:.3g}"),
        ("distance to planes", f"{result.plane_rmse:.3g} root mean square"),
        ("angle between normals", f"{math.degrees(math.acos(min(1.0, result.normal_agreement))):.1f} degrees, median"),
        ("undetermined", "; ".join(result.undetermined) or "nothing"),
        ("time", ", ".join(f"{name} {seconds:.2f} s" for name, seconds in result.timings.items())),
    ):
        table.add_row(name, value)
    out.print(table)
    for warning in result.warnings:
        out.print(Text(f"! {warning}", "yellow"))


def _uncertainty(angle_deg: float | None, shift: float | None) -> str:
    if angle_deg is None:
        return "too few points to say"
    return f"{angle_deg:.3g} degrees, {shift:.2g} in the middle"


def print_cloud(cloud: Cloud, name: str) -> None:
    """What a file holds."""
    table = Table(show_header=False, box=None, pad_edge=True)
    low, high = cloud.points.amin(0).tolist(), cloud.points.amax(0).tolist()
    table.add_row("points", f"{len(cloud):,}")
    for axis, least, most in zip("xyz", low, high, strict=True):
        table.add_row(axis, f"{least:.6g} to {most:.6g}")
    table.add_row("normals", "yes" if cloud.normals is not None else "no")
    table.add_row("colours", "yes" if cloud.colors is not None else "no")
    table.add_row("fields", ", ".join(cloud.fields) or "none")
    table.add_row("not finite", f"{cloud.dropped:,} points left out")
    console().print(name)
    console().print(table)
