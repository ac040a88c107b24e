"""`p2plane`: all commands, and what happens when one of them cannot go on."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from p2plane.cli import batch, data, demo, evaluate, export, info, methods, odometry, register, reproduce, train

BAD_INPUT = 2

app = typer.Typer(
    name="p2plane",
    help="Register 3D point clouds, and train and measure the networks that do.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(data.app, name="data")
app.command()(register.register)
app.command()(batch.batch)
app.command()(demo.demo)
app.command()(info.info)
app.command()(evaluate.evaluate)
app.command()(export.export)
app.command()(methods.methods)
app.command()(odometry.odometry)
app.command()(reproduce.reproduce)
app.command()(train.train)


@app.callback(invoke_without_command=True)
def _version(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
    if version:
        from p2plane import __version__

        typer.echo(f"p2plane {__version__}")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `p2plane` with the given arguments, or those of the shell; the exit code.

    0: done. 2: bad input, named in one line. 3: done, but the answer is not to be trusted.
    """
    try:
        typer.main.get_command(app).main(args=arguments, prog_name="p2plane")
    except SystemExit as stop:
        return int(stop.code or 0)
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        print(f"p2plane: {error}", file=sys.stderr)
        return BAD_INPUT
    return 0
