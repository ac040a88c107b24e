"""What an experiment is: what has to be run for it, and what is made of the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from p2plane.experiments.blocks import Block
from p2plane.experiments.folder import ResultsFolder
from p2plane.experiments.rows import BY_NAME, Row


@dataclass(frozen=True)
class Run:
    """A row over a test set."""

    row: Row
    data: str
    """What the test set stands for in the paper, a key of `Scale.data`."""
    trained_on: str = ""
    """Of a network: what it was trained for, where that is not this test set."""
    name: str = ""
    """Of the results file, where it is not that of the row."""
    head_of: Row | None = None
    """Of a network: whose head it is tested with, where that is not its own."""

    @property
    def results_name(self) -> str:
        """Of the results file."""
        return self.name or self.row.name

    @property
    def weights_data(self) -> str:
        """What the network is trained for."""
        return self.trained_on or self.data


def runs_of(data: str, rows: Sequence[str], trained_on: str = "") -> list[Run]:
    """Several rows over one test set."""
    return [Run(BY_NAME[name], data, trained_on) for name in rows]


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of the paper."""

    name: str
    title: str
    reference: str
    """Where it is in the paper; "ours" where it is not."""
    runs: tuple[Run, ...]
    """What has to be trained and evaluated."""
    render: Callable[[ResultsFolder], list[Block]]
    """What the page shows; reads results files and nothing else."""
    measure: Callable[[ResultsFolder], None] | None = None
    """What has to be measured besides."""
    keep: Callable[[ResultsFolder], None] | None = None
    """Once the results are there: what else figures need, such as the pairs that they show."""
