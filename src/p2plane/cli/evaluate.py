"""`p2plane evaluate`: a method over a test set."""

from __future__ import annotations

from pathlib import Path

import typer

Method = typer.Option(..., help="A weights file (.safetensors), or a name of `p2plane methods`.")
TEST_SETS = (
    "modelnet40-cpu, modelnet40-cpu-unseen, modelnet40-cpu-noisy, modelnet40-cpu-noisy-so3, modelnet40, icl-nuim; or "
    "built in: synthetic in place of modelnet40, and synthetic-icl-nuim"
)
Data = typer.Option(..., help=f"A test set: {TEST_SETS}.")
Out = typer.Option(None, help="Results file, .csv or .parquet (default: results/DATA/METHOD.csv).")
Change = typer.Option([], "--set", help="A setting of the method, such as head.head=plane; may be repeated.")
Pairs = typer.Option(None, help="The first so many pairs (default: all).")
Points = typer.Option(None, help="Points drawn for each side (default: the protocol's).")
Batch = typer.Option(None, help="Pairs at once (default: 8 with a network, 1 otherwise).")
Seed = typer.Option(0, help="Of the pairs, and of what the method draws.")
Processes = typer.Option(None, help="Processes of one thread each (default: as many as cores).")
Root = typer.Option(None, help="Folder of data sets (default: P2PLANE_DATA, then the cache).")
Device = typer.Option("cpu", help="Such as cuda; with one process.")


def evaluate(
    method: str = Method,
    data: str = Data,
    out: Path = Out,
    change: list[str] = Change,
    pairs: int = Pairs,
    points: int = Points,
    batch: int = Batch,
    seed: int = Seed,
    processes: int = Processes,
    root: str = Root,
    device: str = Device,
) -> None:
    """Run a method over a test set; a second start goes on where the first one stopped."""
    from p2plane.evaluation.run import evaluate as run
    from p2plane.evaluation.text import described
    from p2plane.evaluation.worker import Evaluation

    evaluation = Evaluation(method, data, tuple(change), pairs, points, batch, seed, root, device)
    out = out or Path("results") / data / f"{Path(method).stem if method.endswith('.safetensors') else method}.csv"
    typer.echo(described(run(evaluation, out, processes=processes)))
