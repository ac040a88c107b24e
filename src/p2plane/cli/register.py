"""`p2plane register`: two scans in, a pose, a table and a page out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from p2plane.cli.outputs import require_folder_of

NOT_CONFIDENT = 3

Scan = Annotated[Path, typer.Argument(help="PLY, PCD, XYZ, NPY, LAS, OBJ ... (`p2plane info` says what is in a file).")]


def register(
    source: Scan,
    target: Scan,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the moved source here.")] = None,
    transform: Annotated[
        Path | None, typer.Option(help="Write the pose here: .txt, .npy, or .json with all else.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write the page to look at here: .html.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Write a picture, before and after, here: .png.")] = None,
    method: Annotated[
        str, typer.Option(help="Who proposes poses: auto, initial, sweep, or a name (`p2plane methods`).")
    ] = "auto",
    initial: Annotated[
        Path | None,
        typer.Option(help="A first guess, tried beside the search; with --method initial, alone: .txt, .npy or .json."),
    ] = None,
    hold: Annotated[
        list[str] | None,
        typer.Option(
            help="A direction of the target's frame to keep as in --initial: rx, ry, rz, tx, ty, tz; repeat it."
        ),
    ] = None,
    max_points: Annotated[int, typer.Option(help="Larger clouds are thinned to so many points.")] = 200_000,
    time_limit: Annotated[float | None, typer.Option(help="Seconds after which no other search is begun.")] = None,
    seed: Annotated[int, typer.Option(help="Of what is random.")] = 0,
    up: Annotated[
        str | None, typer.Option(help="The target's upright axis in page and picture: x, y, z, -x ...")
    ] = None,
    unit: Annotated[str, typer.Option(help="Of the lengths, such as m, for page and picture.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Find the rigid motion that brings SOURCE onto TARGET.

    Exit code 0: found. 2: bad input. 3: found something, but not to be trusted; the table says why.
    """
    from p2plane.data.io import load_cloud, save_cloud
    from p2plane.registration.pipeline import register as register_scans
    from p2plane.registration.summary import load_pose, require_pose_suffix, save_pose, summary

    for path in (output, transform, report, picture):
        require_folder_of(path)
    if transform is not None:
        require_pose_suffix(transform)
    clouds = [load_cloud(path) for path in (source, target)]
    result = register_scans(
        *clouds,
        method=method,
        initial=None if initial is None else load_pose(initial),
        hold=hold or (),
        max_points=max_points,
        time_limit=time_limit,
        seed=seed,
    )
    if output is not None:
        save_cloud(output, clouds[0].moved(result.T_target_source))
    if transform is not None:
        save_pose(transform, result)
    if report is not None:
        from p2plane.report import write_page

        write_page(report, result, source_name=source.name, target_name=target.name, up=up, unit=unit)
    if picture is not None:
        from p2plane.report import write_picture

        write_picture(picture, result, source_name=source.name, target_name=target.name, up=up, unit=unit)
    if as_json:
        typer.echo(json.dumps(summary(result)))
    else:
        from p2plane.cli.tables import print_registration

        print_registration(result, source.name, target.name)
    if not result.confident:
        raise typer.Exit(NOT_CONFIDENT)
