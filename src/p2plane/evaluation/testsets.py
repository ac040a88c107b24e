"""The test sets by name: which shapes, and how pairs are made of them.

The names of real data have twins that are built in, so that everything runs without any: "synthetic-cpu" has the
built-in shapes where "modelnet40-cpu" has ModelNet40's.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch.utils.data import Subset

from p2plane.data.catalog import open_shapes
from p2plane.data.pairs import PROTOCOLS, PairDataset, PairSettings, Shapes, train_and_test

KEPT = 0.75  # of the points of a side that a protocol of the paper draws, a crop leaves so many


@dataclass(frozen=True)
class PairSource:
    """Where the pairs of a test set come from."""

    shapes: str
    """The name of a data set of shapes."""
    protocol: str
    """How pairs are made of them: a key of `p2plane.data.pairs.PROTOCOLS`."""
    unseen: bool = False
    """Whether only the second half of the categories is tested, for networks trained with the first."""
    least_pairs: int = 0
    """Where there are fewer shapes, they come again, and are moved in other ways."""


TEST_SETS = {
    "modelnet40-cpu": PairSource("modelnet40", "cpu"),
    "modelnet40-cpu-unseen": PairSource("modelnet40", "cpu", unseen=True),
    "modelnet40-cpu-noisy": PairSource("modelnet40", "cpu-noisy"),
    "modelnet40-cpu-noisy-so3": PairSource("modelnet40", "cpu-noisy-so3"),
    "modelnet40": PairSource("modelnet40", "modelnet40"),
    "icl-nuim": PairSource("icl-nuim", "icl-nuim", least_pairs=200),
    "synthetic-cpu": PairSource("synthetic", "cpu"),
    "synthetic-cpu-unseen": PairSource("synthetic", "cpu", unseen=True),
    "synthetic-cpu-noisy": PairSource("synthetic", "cpu-noisy"),
    "synthetic-cpu-noisy-so3": PairSource("synthetic", "cpu-noisy-so3"),
    "synthetic": PairSource("synthetic", "modelnet40"),
    "synthetic-icl-nuim": PairSource("synthetic", "icl-nuim"),
}


def source_of(name: str) -> PairSource:
    """Where the pairs of a test set come from."""
    if name not in TEST_SETS:
        raise ValueError(f"data must be one of {tuple(TEST_SETS)}, got {name!r}")
    return TEST_SETS[name]


def open_test_set(
    name: str, *, seed: int = 0, points: int | None = None, root: str | os.PathLike | None = None
) -> PairDataset:
    """The test pairs of a name, with the whole shapes that the Chamfer distance needs.

    Args:
        name: a key of `TEST_SETS`.
        seed: of all that is random about the pairs.
        points: drawn for each side, of which a crop leaves three quarters; None for the protocol's.
        root: of the data; None for P2PLANE_DATA, then the cache.
    """
    source = source_of(name)
    shapes = open_shapes(source.shapes, "test", root)
    if source.unseen:
        shapes = _of_the_second_half(shapes)
    if len(shapes) < source.least_pairs:
        shapes = _some(shapes, [index % len(shapes) for index in range(source.least_pairs)])
    return PairDataset(shapes, pair_settings(name, points), seed=seed, whole=True)


def pair_settings(name: str, points: int | None = None) -> PairSettings:
    """How the pairs of a test set are made; arguments as in `open_test_set`."""
    settings = PROTOCOLS[source_of(name).protocol]
    if points is None:
        return settings
    if points < 8:
        raise ValueError(f"points must be at least 8, got {points}")
    return replace(settings, points=points, keep=round(KEPT * points))


def described(name: str, points: int | None = None) -> dict[str, Any]:
    """All that defines a test set but its data and its seed, for the record."""
    source = source_of(name)
    made = asdict(pair_settings(name, points))
    return {"name": name, "shapes": source.shapes, "unseen": source.unseen, "made": made}


def _of_the_second_half(shapes: Any) -> Shapes:
    unseen = set(train_and_test(shapes.names)[1])
    return _some(shapes, [i for i, label in enumerate(shapes.labels.tolist()) if shapes.names[label] in unseen])


def _some(shapes: Any, indices: list[int]) -> Shapes:
    return Subset(shapes, indices)
