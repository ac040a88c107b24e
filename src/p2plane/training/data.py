"""The pairs that a network is trained on, and those that it is measured with meanwhile.

A pair depends on the seed and on its position in an endless stream alone. So the state of the data is one integer, and
neither workers nor processes matter.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, get_type_hints

import numpy as np
from torch.utils.data import DataLoader, Dataset, Sampler

from p2plane.data.catalog import CATALOG, open_shapes
from p2plane.data.folder import CloudFolder
from p2plane.data.pair import Pair, collate
from p2plane.data.pairs import PROTOCOLS, PairDataset, PairSettings, Shapes, train_and_test
from p2plane.data.published_pairs import PUBLISHED
from p2plane.data.shape import Shape
from p2plane.data.synthetic import SyntheticShapes
from p2plane.solve.inputs import one_of
from p2plane.training.settings import checked_value, fill, inside, plain, unknown

BLOCK = 1000
"""In so many pairs of a mix, every part has exactly its share."""


@dataclass(frozen=True)
class DataSettings:
    """One kind of pairs. In a file, the fields of `PairSettings` may stand beside these, and change the protocol."""

    name: str = "modelnet40"
    """A data set that `p2plane data` lists, or "folder"."""
    folder: str | None = None
    """With "folder": where the user's clouds or meshes are."""
    protocol: str = "cpu"
    """How pairs are made: a protocol of `PairDataset`."""
    weight: float = 1.0
    """How often pairs of this kind come, beside the others of a mix."""
    half: str = "both"
    """"first" or "second" half of the categories in alphabetical order, or "both"."""
    shapes_per_category: int | None = None
    """Of the built-in shapes."""
    root: str | None = None
    """Where the data set is, if not in the usual places."""
    pairs: PairSettings | None = None
    """All about the pairs; None for a published protocol, which is as it is."""

    def __post_init__(self) -> None:
        one_of("name", self.name, (*CATALOG, "folder"))
        one_of("half", self.half, ("both", "first", "second"))
        one_of("protocol", self.protocol, (*PROTOCOLS, *PUBLISHED))
        if (self.folder is not None) != (self.name == "folder"):
            raise ValueError(f"folder must go with name = 'folder', got {self.folder!r} with {self.name!r}")
        if self.shapes_per_category is not None and (self.name != "synthetic" or self.shapes_per_category < 1):
            raise ValueError(f"shapes_per_category must be positive, of 'synthetic', got {self.shapes_per_category}")
        if not 0 < self.weight < float("inf"):
            raise ValueError(f"weight must be positive, got {self.weight}")

    @staticmethod
    def from_values(values: Any, where: str = "data") -> DataSettings:
        """Settings from a table of a file."""
        own = {each.name for each in fields(DataSettings)} - {"pairs"}
        hints = get_type_hints(PairSettings)
        if not isinstance(values, dict):
            raise ValueError(f"{where} must be a table of settings, got {values!r}")
        for name in values:
            if name not in own and name not in hints:
                raise unknown(inside(where, name), name, [*sorted(own), *hints])
        settings = fill(DataSettings, {name: value for name, value in values.items() if name in own}, where)
        about = {name: value for name, value in values.items() if name not in own}
        if settings.protocol in PUBLISHED:
            if about:
                raise ValueError(f"{where}.{next(iter(about))} must not be set: {settings.protocol!r} is as published")
            return settings
        checked = {name: checked_value(hints[name], value, inside(where, name)) for name, value in about.items()}
        try:
            return replace(settings, pairs=replace(PROTOCOLS[settings.protocol], **checked))
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error

    def values(self) -> dict[str, Any]:
        """The table of a file that says the same."""
        own = {name: value for name, value in plain(self).items() if name != "pairs" and value != "none"}
        return own | (plain(self.pairs) if self.pairs is not None else {})

    def shapes(self, split: str) -> Shapes:
        """The shapes, of those categories that count."""
        if self.folder is not None:
            shapes: Any = CloudFolder(self.folder, split)
        elif self.shapes_per_category is not None:
            shapes = SyntheticShapes(split, shapes_per_category=self.shapes_per_category)
        else:
            shapes = open_shapes(self.name, split, self.root)
        members = np.arange(len(shapes))
        if self.half != "both":
            first, second = train_and_test(shapes.names)
            wanted = {shapes.names.index(name) for name in (first if self.half == "first" else second)}
            members = np.flatnonzero(np.isin(shapes.labels.numpy(), list(wanted)))
            if not len(members):
                raise ValueError(f"half must leave some shapes of {self.name}, got none with {self.half!r}")
        return Part(shapes, members, remember=not self.name.startswith("modelnet40"))


class Part:
    """Some shapes of a data set; remembered, where making or reading them takes time.

    Args:
        shapes: a data set of shapes.
        members: (K,) which of them.
        remember: whether a shape is kept once it was asked for.
    """

    def __init__(self, shapes: Shapes, members: np.ndarray, *, remember: bool) -> None:
        self._shapes, self._members = shapes, members
        self._known: dict[int, Shape] | None = {} if remember else None
        labels: Any = getattr(shapes, "labels", None)
        self.labels = np.zeros(len(members), dtype=np.int64) if labels is None else np.asarray(labels)[members]

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, index: int, /) -> Shape:
        member = int(self._members[index])
        if self._known is None:
            return self._shapes[member]
        if member not in self._known:
            self._known[member] = self._shapes[member]
        return self._known[member]

    def split(self, share: float) -> tuple[Part, Part]:
        """Two parts: the last shapes of every category go to the second; both are the whole if that is one shape."""
        held_out = np.zeros(len(self), dtype=bool)
        for label in np.unique(self.labels):
            rows = np.flatnonzero(self.labels == label)
            held_out[rows[len(rows) - int(share * len(rows)) :]] = True
        if share > 0 and not held_out.any() and len(self) > 1:
            held_out[-1] = True
        if not held_out.any():
            return self, self
        return self._of(~held_out), self._of(held_out)

    def _of(self, rows: np.ndarray) -> Part:
        return Part(self._shapes, self._members[rows], remember=self._known is not None)


class PairStream(Dataset):
    """Pairs without end, by their position: all shapes of a part once, then again in another order and made anew.

    Args:
        parts: the kinds of pairs, with fresh pairs.
        weights: how often each comes.
        seed: of the order.
    """

    def __init__(self, parts: Sequence[PairDataset], weights: Sequence[float], seed: int) -> None:
        self.parts, self.seed = list(parts), seed
        self.counts = _shares(weights, BLOCK)
        self._orders: dict[tuple[int, ...], np.ndarray] = {}

    def __len__(self) -> int:
        """Shapes of all parts: so many pairs are called an epoch."""
        return sum(len(part) for part in self.parts)

    def __getitem__(self, position: int) -> Pair:
        part, epoch, index = self.locate(position)
        return self.parts[part].pair(index, epoch)

    def locate(self, position: int) -> tuple[int, int, int]:
        """The part, its epoch and the index of its shape, at a position of the stream."""
        part, own = 0, position
        if len(self.parts) > 1:
            block, offset = divmod(position, BLOCK)
            order = self._order((0, block), np.repeat(np.arange(len(self.parts)), self.counts))
            part = int(order[offset])
            own = block * self.counts[part] + int((order[:offset] == part).sum())
        epoch, place = divmod(own, len(self.parts[part]))
        order = self._order((1 + part, epoch), np.arange(len(self.parts[part])))
        return part, epoch, int(order[place])

    def _order(self, key: tuple[int, int], values: np.ndarray) -> np.ndarray:
        """A shuffle that depends on the seed and the key; the last one of each kind is kept."""
        kind, number = key
        if (kind, number) not in self._orders:
            self._orders = {known: order for known, order in self._orders.items() if known[0] != kind}
            self._orders[kind, number] = np.random.default_rng([self.seed, kind, number]).permutation(values)
        return self._orders[kind, number]


class Positions(Sampler[list[int]]):
    """Positions of the batches of one process, from a step on and without end; processes share a batch evenly."""

    def __init__(self, batch_size: int, *, start: int = 0, rank: int = 0, world: int = 1) -> None:
        self._batch, self._start = batch_size, start
        self._mine = range(rank * (batch_size // world), (rank + 1) * (batch_size // world))

    def __iter__(self) -> Iterator[list[int]]:
        for step in itertools.count(self._start):
            yield [step * self._batch + place for place in self._mine]


@dataclass(frozen=True)
class TrainingData:
    """The streams to train on and to measure with."""

    train: PairStream
    validation: PairStream


def open_data(kinds: Sequence[DataSettings], *, seed: int, held_out: float) -> TrainingData:
    """Open all data sets.

    Args:
        kinds: what to mix.
        seed: of the pairs and their order.
        held_out: share of the training shapes that are for validation alone.
    """
    opened: dict[tuple, tuple[Part, Part]] = {}
    parts: tuple[list[PairDataset], list[PairDataset]] = ([], [])
    seeds = seed, (seed + 1) % 2**32
    for kind in kinds:
        of_shapes = kind.name, kind.folder, kind.half, kind.shapes_per_category, kind.root
        if of_shapes not in opened:
            opened[of_shapes] = kind.shapes("train").split(held_out)  # type: ignore[attr-defined]
        for which, shapes in enumerate(opened[of_shapes]):
            parts[which].append(PairDataset(shapes, kind.pairs or kind.protocol, seed=seeds[which], fresh=True))
    weights = [kind.weight for kind in kinds]
    return TrainingData(*(PairStream(each, weights, number) for each, number in zip(parts, seeds, strict=True)))


def loader(stream: Dataset, sampler: Any, workers: int) -> DataLoader:
    """Batches of a stream; workers prepare them ahead."""
    return DataLoader(
        stream,
        batch_sampler=sampler,
        collate_fn=collate,
        num_workers=workers,
        prefetch_factor=4 if workers else None,
    )


def _shares(weights: Sequence[float], total: int) -> list[int]:
    """Whole numbers in proportion to the weights, that sum to the total and are at least one."""
    exact = np.asarray(weights, dtype=float) / np.sum(weights) * total
    counts = np.maximum(1, np.floor(exact).astype(int))
    for index in np.argsort(counts - exact, kind="stable")[: total - counts.sum()]:
        counts[index] += 1
    while counts.sum() > total:
        counts[np.argmax(counts)] -= 1
    return counts.tolist()


def described(kinds: Sequence[DataSettings]) -> list[dict[str, Any]]:
    """What the pairs were, for the notes of a weights file."""
    return [
        {"data": kind.name, "protocol": kind.protocol, "half": kind.half, "weight": kind.weight}
        | (asdict(kind.pairs) if kind.pairs else {})
        for kind in kinds
    ]
