"""All experiments by name, in the order of the page."""

from __future__ import annotations

from p2plane.experiments.cdfs import CDFS
from p2plane.experiments.comparison import CPU_UNSEEN, ICL_NUIM, MODELNET40_CPU
from p2plane.experiments.differentiation import DIFFERENTIATION
from p2plane.experiments.experiment import Experiment
from p2plane.experiments.galleries import GALLERIES
from p2plane.experiments.hard import HARD
from p2plane.experiments.heads import HEADS
from p2plane.experiments.overhead import OVERHEAD
from p2plane.experiments.parts import PARTS
from p2plane.experiments.pictures import RESULTS_FIGURE, TEASER_FIGURE
from p2plane.experiments.plane_for_testing import PLANE_FOR_TESTING
from p2plane.experiments.scatter import SCATTER

ALL = "all"
EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        TEASER_FIGURE,
        MODELNET40_CPU,
        CPU_UNSEEN,
        ICL_NUIM,
        PLANE_FOR_TESTING,
        OVERHEAD,
        DIFFERENTIATION,
        RESULTS_FIGURE,
        CDFS,
        SCATTER,
        GALLERIES,
        HEADS,
        HARD,
        PARTS,
    )
}


def experiments_of(name: str) -> list[Experiment]:
    """The experiment of a name, or all."""
    if name == ALL:
        return list(EXPERIMENTS.values())
    if name not in EXPERIMENTS:
        raise ValueError(f"name must be one of {(ALL, *EXPERIMENTS)}, got {name!r}")
    return [EXPERIMENTS[name]]
