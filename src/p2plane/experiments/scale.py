"""How much of the paper's experiments is run: all of it, what fits two cores, or what fits a minute."""

from __future__ import annotations

from dataclasses import dataclass, field

from p2plane.experiments.rows import PARTS

DATA = {
    "cpu": "modelnet40-cpu",
    "cpu-unseen": "modelnet40-cpu-unseen",
    "cpu-noisy": "modelnet40-cpu-noisy",
    "cpu-noisy-so3": "modelnet40-cpu-noisy-so3",
    "plain": "modelnet40",
    "icl-nuim": "icl-nuim",
}
BUILT_IN = {
    "cpu": "synthetic-cpu",
    "cpu-unseen": "synthetic-cpu-unseen",
    "cpu-noisy": "synthetic-cpu-noisy",
    "cpu-noisy-so3": "synthetic-cpu-noisy-so3",
    "plain": "synthetic",
    "icl-nuim": "synthetic-icl-nuim",
}


@dataclass(frozen=True)
class Scale:
    """What is run, and over what."""

    name: str
    """Of the folder of its results."""
    about: str
    data: dict[str, str] = field(default_factory=lambda: DATA)
    """The test sets, by what they stand for in the paper."""
    config_suffix: str = ""
    """Of the names of configs."""
    pairs: int | None = None
    """Of every test set; None for all."""
    points: int | None = None
    """Of each side of a pair; None for the protocol's."""
    row_pairs: dict[str, int] = field(default_factory=dict)
    """Fewer pairs for rows that take too long."""
    row_changes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Settings of rows that would take too long otherwise."""
    training_share: dict[str, float] = field(default_factory=dict)
    """How many of the steps of a config a training has, by the test set that it is for; all where it is not named."""
    same: dict[str, str] = field(default_factory=dict)
    """Rows that are the same as others, as the configs of this scale have it; these are run once."""
    quick: bool = False
    """Whether it is only to be seen that everything runs: one training of a row serves all test sets."""

    def pairs_of(self, row: str) -> int | None:
        """How many pairs a row is tested with; None for all."""
        return self.row_pairs.get(row, self.pairs)


SCALES = {
    "full": Scale(
        "full",
        "The paper's settings; for a machine with a GPU, and days.",
        same={"rpmnet-plane-published": "rpmnet-plane"},
    ),
    "small": Scale(
        "small",
        "Small presets for one CPU core, equal budgets for both heads of a network; the paper's full test sets.",
        config_suffix="-small",
        same={"rpmnet-plane-ours": "rpmnet-plane"},
        row_pairs={**dict.fromkeys((row.name for row in PARTS), 300)},
        row_changes={"go-icp": ("time_limit=1", "cells=32", "max_points=150")},
        training_share={"cpu-unseen": 0.5, "icl-nuim": 0.5},
    ),
    "smoke": Scale(
        "smoke",
        "Tiny networks after a few steps on built-in shapes: shows that everything runs; the numbers mean nothing.",
        data=BUILT_IN,
        same={"rpmnet-plane-ours": "rpmnet-plane"},
        pairs=4,
        points=64,
        row_pairs={"go-icp": 2},
        row_changes={"go-icp": ("time_limit=0.2", "cells=16", "max_points=32")},
        quick=True,
    ),
}


def scale_of(name: str) -> Scale:
    """The scale of a name."""
    if name not in SCALES:
        raise ValueError(f"scale must be one of {tuple(SCALES)}, got {name!r}")
    return SCALES[name]
