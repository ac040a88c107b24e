"""`p2plane batch`: many pairs of scans, a row for each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def batch(
    pairs: Annotated[
        Path,
        typer.Argument(
            help="A CSV file of the columns source, target and perhaps initial (the file of a first pose), names "
            "relative to it; or a folder of clouds, each of which is registered onto the one before."
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Results file, .csv or .parquet.")],
    method: Annotated[
        str, typer.Option(help="Who proposes poses: auto, initial, or a name (`p2plane methods`).")
    ] = "auto",
    hold: Annotated[
        list[str] | None, typer.Option(help="A direction to hold: rx, ry, rz, tx, ty, tz; repeat it.")
    ] = None,
    max_points: Annotated[int, typer.Option(help="Larger clouds are thinned to so many points.")] = 200_000,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds for each pair after which no other search is begun.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of what is random.")] = 0,
    engine: Annotated[str, typer.Option(help="processes, on this machine; or ray, on this one or a cluster.")] = (
        "processes"
    ),
    processes: Annotated[
        int | None, typer.Option(help="Of one thread each (default: as many as cores, of the cluster with ray).")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Of a Ray cluster: auto, or ray://host:10001 (default: Ray on this machine).")
    ] = None,
    retry_failed: Annotated[bool, typer.Option(help="Do the pairs again whose row has an error.")] = False,
) -> None:
    """Register many pairs of scans, one row for each; a second start goes on where the first one stopped.

    Exit code 0: done, though pairs may have failed; their rows say why. 2: bad input. 3: no pair has an answer that is
    to be trusted.
    """
    from p2plane.batch.run import register_many
    from p2plane.cli.register import NOT_CONFIDENT

    results = register_many(
        pairs,
        output,
        method=method,
        hold=hold or (),
        max_points=max_points,
        time_limit=time_limit,
        seed=seed,
        engine=engine,
        processes=processes,
        address=address,
        retry_failed=retry_failed,
    )
    unsure = len(results) - results.confident - results.failed
    typer.echo(
        f"{len(results)} pairs: {results.confident} confident, {unsure} not confident, {results.failed} failed; "
        f"rows are in {results.path}"
    )
    if results.failed:
        first = next(result for result in results if result.error)
        typer.echo(f"the first that failed is number {first.index}, {first.source} onto {first.target}: {first.error}")
    if not results.confident:
        raise typer.Exit(NOT_CONFIDENT)
