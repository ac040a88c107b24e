"""`p2plane data`: list the data sets, check one, or download one."""

from __future__ import annotations

import typer

app = typer.Typer(help="List the data sets, check one, or download one.", invoke_without_command=True)

Root = typer.Option(None, help="Folder of data sets (default: P2PLANE_DATA, then the cache).")
Name = typer.Argument(help="Such as modelnet40.")


@app.callback()
def listing(context: typer.Context, root: str = Root) -> None:
    """List the data sets, check one, or download one."""
    from p2plane.data import catalog

    if context.invoked_subcommand is None:
        typer.echo(catalog.listing(root))
    context.obj = root


@app.command()
def check(context: typer.Context, name: str = Name, root: str = Root) -> None:
    """Read every shape of a data set and say what it holds."""
    from p2plane.data import catalog

    typer.echo(catalog.check(name, root or context.obj))


@app.command()
def download(context: typer.Context, name: str = Name, root: str = Root) -> None:
    """Fetch a data set; goes on where it was cut."""
    from p2plane.data import catalog

    typer.echo(f"{name} is in {catalog.fetch(name, root or context.obj)}")
