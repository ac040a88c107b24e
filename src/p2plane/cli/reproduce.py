"""`p2plane reproduce`: a table or figure of the paper, or all."""

from __future__ import annotations

from pathlib import Path

import typer

from p2plane.cli.outputs import make_folder

Name = typer.Argument(
    help="all, or one of: teaser, modelnet40-cpu, cpu-unseen, icl-nuim, plane-for-testing, overhead, differentiation, "
    "results-figure, cdfs, scatter, galleries, heads, hard, parts."
)
Scale = typer.Option("small", help="full (the paper's), small (two cores, hours), or smoke (a minute, no data).")
Results = typer.Option(Path("results"), help="Folder of results; what is there is not run again.")
From = typer.Option(None, "--from", help="Make the page from these results, and run nothing.")
Out = typer.Option(None, help="Folder of the page (default: that of the results).")
Compact = typer.Option(False, help="Write results files anew as small Parquet files, to keep in a repository.")
Rows = typer.Option([], "--row", help="Run only this row, such as rpmnet-plane; may be repeated.")
Device = typer.Option("cpu", help="For evaluations, such as cuda; with one process. Trainings take what is there.")
Processes = typer.Option(None, help="For evaluations (default: as many as cores).")


def reproduce(
    name: str = Name,
    scale: str = Scale,
    results: Path = Results,
    source: Path = From,
    out: Path = Out,
    compact: bool = Compact,
    row: list[str] = Rows,
    processes: int = Processes,
    device: str = Device,
) -> None:
    """Run a table or figure of the paper, or all; what was run before is not run again."""
    from p2plane.experiments.perform import Options
    from p2plane.experiments.run import reproduce as run

    for folder in (out, None if source else results):
        if folder is not None:
            make_folder(folder)
    options = Options(processes, tuple(row), device, lambda text: typer.echo(text, err=True))
    done = run(name, scale, source or results, out=out, run=source is None, compact=compact, options=options)
    typer.echo(f"the page is {done.html}, and as Markdown {done.markdown}")
    if done.problems:
        raise RuntimeError("not everything could be run:\n" + "\n".join(f"- {problem}" for problem in done.problems))
