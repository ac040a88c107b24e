"""`p2plane odometry`: a folder of scans in, the path of the scanner out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from p2plane.cli.outputs import make_folder

SHOWN = 10


def odometry(
    folder: Annotated[Path, typer.Argument(help="Clouds in the order of their names, scan2 before scan10.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for poses, graphs, map and picture.")] = Path(
        "p2plane-odometry"
    ),
    times: Annotated[
        Path | None, typer.Option(help="A file with the time of each scan, for tum.txt (default: their numbers).")
    ] = None,
    max_points: Annotated[int, typer.Option(help="Scans are thinned to so many points.")] = 20_000,
    map_points: Annotated[int, typer.Option(help="The most points of the map.")] = 500_000,
    seed: Annotated[int, typer.Option(help="Of what is random.")] = 0,
    up: Annotated[str | None, typer.Option(help="The first scan's upright axis in the picture: x, -y ...")] = None,
    unit: Annotated[str, typer.Option(help="Of the lengths, such as m, for the picture.")] = "",
) -> None:
    """Align consecutive scans of a folder into a trajectory.

    Writes kitti.txt, tum.txt, matrices.txt (poses in the frame of the first scan), graph.g2o, graph.json (Open3D),
    map.ply, map.png and steps.csv.

    Exit code 0: done. 2: bad input. 3: done, but some steps are not to be trusted; steps.csv says which and why.
    """
    from p2plane.cli.register import NOT_CONFIDENT
    from p2plane.odometry.picture import write_map_picture
    from p2plane.odometry.poses import read_times
    from p2plane.odometry.run import odometry as run
    from p2plane.odometry.save import save_trajectory
    from p2plane.odometry.scans import list_scans
    from p2plane.report.view import UPS
    from p2plane.solve.inputs import one_of

    if up is not None:
        one_of("up", up, UPS)
    stamps = None if times is None else read_times(times)
    files, count = list_scans(folder)
    if stamps is not None and len(stamps) != count:
        raise ValueError(f"{times} must hold a time for each of the {count} scans, got {len(stamps)}")
    make_folder(output)
    trajectory = run(files, max_points=max_points, map_points=map_points, seed=seed, show_progress=True)
    save_trajectory(output, trajectory, stamps)
    write_map_picture(output / "map.png", trajectory, up=up, unit=unit)
    way = trajectory.poses[:, :3, 3]
    length = float((way[1:] - way[:-1]).norm(dim=-1).sum())
    unsure = sum(not step.confident for step in trajectory.steps)
    typer.echo(
        f"{len(trajectory)} scans, {length:.4g} along the way, {float((way[-1] - way[0]).norm()):.4g} from start to "
        f"end; {unsure} steps not confident"
    )
    for warning in trajectory.warnings[:SHOWN]:
        typer.echo(f"! {warning}")
    if len(trajectory.warnings) > SHOWN:
        typer.echo(f"! and {len(trajectory.warnings) - SHOWN} more, in {output / 'steps.csv'}")
    typer.echo(f"poses, graphs, map and picture are in {output}")
    if unsure:
        raise typer.Exit(NOT_CONFIDENT)
