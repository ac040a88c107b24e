"""`p2plane info`: what a cloud file holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def info(
    cloud: Annotated[Path, typer.Argument(help="A file of points or a mesh.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Say what a cloud file holds."""
    from p2plane.data.io import load_cloud

    content = load_cloud(cloud)
    if not as_json:
        from p2plane.cli.tables import print_cloud

        print_cloud(content, str(cloud))
        return
    facts = {
        "points": len(content),
        "low": content.points.amin(0).tolist(),
        "high": content.points.amax(0).tolist(),
        "normals": content.normals is not None,
        "colors": content.colors is not None,
        "fields": list(content.fields),
        "dropped": content.dropped,
    }
    typer.echo(json.dumps(facts))
