"""`p2plane export`: a network as an ONNX graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ALIKE = 1e-3  # between entries of poses; rounding is far below, another pose far above


def export(
    model: Annotated[str, typer.Argument(help="A weights file (.safetensors), or the name of one that comes along.")],
    path: Annotated[Path, typer.Argument(help="The graph to write, .onnx.")],
    points: Annotated[int, typer.Option(help="Points of a source.")] = 1024,
    target_points: Annotated[int | None, typer.Option(help="Points of a target (default: as many).")] = None,
    batch: Annotated[int, typer.Option(help="Pairs at once.")] = 1,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the network, such as head.head=plane; repeat it.")
    ] = None,
    check: Annotated[int, typer.Option(help="Pairs of built-in shapes to compare with PyTorch on; 0 for none.")] = 50,
) -> None:
    """Write a network as one ONNX graph from clouds to poses, and compare it with PyTorch."""
    from p2plane.export import export_onnx, largest_difference
    from p2plane.networks.weights import load_model, read_header
    from p2plane.training.files import with_changes

    network = load_model(model, **with_changes(read_header(model)["config"], change or []))
    written = export_onnx(network, path, points=points, target_points=target_points, batch=batch)
    typer.echo(f"{type(network).__name__} for {points} points is in {written}")
    if check > 0:
        apart = largest_difference(network, written, pairs=check)
        if not apart <= ALIKE:
            written.unlink()
            raise ValueError(
                f"{type(network).__name__} cannot be exported: poses of {check} pairs differ from PyTorch's by up to "
                f"{apart:.1e}, more than {ALIKE:g}, and {written} was removed"
            )
        typer.echo(f"poses of {check} pairs differ from PyTorch's by at most {apart:.1e}")
