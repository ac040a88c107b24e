"""A training so small that it takes seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from p2plane.training import TrainSettings, load_settings

CHANGES = (
    "data.points=64",
    "data.keep=48",
    "data.shapes=1",
    "data.shapes_per_category=2",
    "validation.held_out=0.5",
    "validation.pairs=2",
    "validation.every=4",
    "budget.steps=8",
    "log_every=1",
    "accelerator=cpu",
    "threads=1",
)


def tiny(*changes: str) -> TrainSettings:
    """The packaged smoke config, smaller still, with changes."""
    return load_settings("smoke", (*CHANGES, *changes))


def as_arguments(*changes: str) -> list[str]:
    """The same for the command line."""
    return ["smoke", *(part for change in (*CHANGES, *changes) for part in ("--set", change))]


def weights(folder: Path, name: str = "last") -> dict[str, torch.Tensor]:
    return load_file(folder / f"{name}.safetensors")


def assert_equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    """Bit by bit."""
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


def columns(folder: Path, *names: str) -> list[tuple[Any, ...]]:
    """Some columns of the log."""
    import csv

    with open(folder / "log.csv", newline="") as file:
        return [tuple(row[name] for name in names) for row in csv.DictReader(file)]
