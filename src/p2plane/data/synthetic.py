"""The built-in data set: objects made by program, for when no other data is at hand."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import torch

from p2plane.data.shape import Shape, ShapeDataset, into_unit_sphere
from p2plane.data.shapes.categories import CATEGORIES
from p2plane.data.shapes.parts import sample_outside

_SPLITS = ("train", "test")


class SyntheticShapes(ShapeDataset):
    """Furniture, vessels, vehicles and the like, under the forty names of ModelNet40.

    Every object is made when it is asked for, from the seed, the split, its category and its number within the
    category and from nothing else: neither order nor workers matter, and the splits share no object. Most objects
    fix their pose; some bottles, bowls and vases turn into themselves, and some tables do after half a turn.

    Args:
        split: "train" or "test".
        shapes_per_category: objects of each category; 100 for training and 25 for testing where it is not given.
        points: of each object.
        categories: restrict to these, all where it is not given; labels stay the same.
        seed: zero or more; another seed gives other objects.
    """

    def __init__(
        self,
        split: str = "train",
        *,
        shapes_per_category: int | None = None,
        points: int = 2048,
        categories: Sequence[str] | None = None,
        seed: int = 0,
    ) -> None:
        if split not in _SPLITS:
            raise ValueError(f"split must be one of {_SPLITS}, got {split!r}")
        if shapes_per_category is None:
            shapes_per_category = 100 if split == "train" else 25
        _require_at_least(1, shapes_per_category=shapes_per_category, points=points)
        _require_at_least(0, seed=seed)
        self.split, self.shapes_per_category, self.points, self.seed = split, shapes_per_category, points, seed
        self.names = sorted(CATEGORIES)
        self.categories = _known(self.names if categories is None else categories)
        """The categories in use, in alphabetical order."""
        labels = torch.tensor([self.names.index(name) for name in self.categories])
        self.labels = labels.repeat_interleave(shapes_per_category)

    def shape(self, index: int) -> Shape:
        """The shape of a number that is in range."""
        which, number = divmod(index, self.shapes_per_category)
        name = self.categories[which]
        # A checksum and not hash(), which differs from one interpreter to the next.
        keys = [self.seed, zlib.crc32(self.split.encode()), zlib.crc32(name.encode()), number]
        generator = np.random.default_rng(keys)
        points, normals = sample_outside(CATEGORIES[name](generator), self.points, generator)
        return Shape(
            points=into_unit_sphere(torch.from_numpy(points)).float(),
            normals=torch.from_numpy(normals).float(),
            label=self.names.index(name),
            name=name,
        )


def _known(categories: Sequence[str]) -> list[str]:
    unknown = sorted(set(categories) - set(CATEGORIES))
    if isinstance(categories, str) or unknown or not categories:
        raise ValueError(f"categories must be some of {sorted(CATEGORIES)}, got {categories!r}")
    return sorted(set(categories))


def _require_at_least(least: int, **arguments: int) -> None:
    for name, value in arguments.items():
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
