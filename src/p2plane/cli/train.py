"""`p2plane train`: train a network as a config says, or go on where a training was cut off."""

from __future__ import annotations

from typing import Optional

import typer

Config = typer.Argument(help="A TOML file, or the name of a packaged config, such as rpmnet-plane-small.")
Set = typer.Option([], "--set", help="Change a setting: --set optimizer.lr=1e-3. May be repeated.")
Out = typer.Option(None, help="Folder of the run (default: runs/ and the name of the config).")
Resume = typer.Option(
    None, "--resume/--fresh", help="Only go on with an earlier run, or remove it. Default: go on if there is one."
)


def train(
    config: str = Config,
    changes: list[str] = Set,
    out: Optional[str] = Out,  # noqa: UP045, as typer of Python 3.10 wants it
    resume: Optional[bool] = Resume,  # noqa: UP045
) -> None:
    """Train a network as a config says, or go on where a training was cut off."""
    from p2plane.training.config import load_settings
    from p2plane.training.files import find_config
    from p2plane.training.run import is_first_process
    from p2plane.training.run import train as run

    settings = load_settings(config, changes)
    result = run(settings, out or f"runs/{find_config(config).stem}", resume=resume)
    if not is_first_process():
        return
    if not result.finished:
        typer.echo(f"stopped at step {result.steps}: the same command goes on from there")
        return
    best = result.best
    typer.echo(
        f"{result.steps} steps in {result.minutes:.1f} minutes, {result.skipped} skipped; best at step {best['step']}: "
        f"angle {best['angle_mean_deg']:.3f} deg, translation {best['length_mean']:.4f}, in {result.weights}"
    )
