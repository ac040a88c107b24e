"""How a pair of clouds is made of shapes: one small vocabulary of settings, and the protocols that papers name.

A pair depends on its index, the seed and, in training, the epoch, and on nothing else: not on the order in which pairs
are asked for, nor on the number of workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.random import RandomState
from torch.utils.data import Dataset

from p2plane.data.augment import (
    Made,
    Side,
    any_motion,
    draw_two,
    flip,
    half_space,
    jitter,
    near_viewpoint,
    random_motion,
)
from p2plane.data.pair import Pair
from p2plane.data.published_pairs import PUBLISHED
from p2plane.data.shape import Shape
from p2plane.geometry.normals import estimate_normals


class Shapes(Protocol):
    """What pairs are made of: a data set of shapes."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Shape: ...


@dataclass(frozen=True)
class PairSettings:
    """How a pair is made. The defaults are those of the paper, for one shape."""

    shapes: int = 1
    """Shapes that are put together, each moved at random within the same range, without rescaling."""
    points: int = 1024
    """Points drawn for each side."""
    shared: float | None = None
    """The share of them that both sides draw; None to draw the sides independently."""
    max_angle_deg: float = 45.0
    """About each axis, from zero."""
    any_rotation: bool = False
    """Whether the motion between the sides turns by any rotation, all alike; shapes are still composed as above."""
    max_translation: float = 0.5
    """Along each axis, both ways."""
    noise: float = 0.0
    """Standard deviation of Gaussian noise on all points, independent on the two sides."""
    noise_clip: float = 0.05
    """The noise is cut off here."""
    crop: str = "viewpoint"
    """What is left of each side: "none" for all, "viewpoint" for PRNet's far view point that both sides share,
    "half-space" for RPMNet's, one direction for each side."""
    keep: int = 768
    """Points that a crop leaves."""
    normals: str = "true"
    """"true" for those of the shapes, "estimated" for those of the points that are left."""
    normal_neighbors: int = 16
    """Neighbours for an estimated normal; so many come nearest to the truth on noisy, composed pairs of ModelNet40."""
    flip_normals: bool = False
    """Whether each normal has a random sign, as estimated ones have."""

    def __post_init__(self) -> None:
        for name, choices in (("crop", ("none", "viewpoint", "half-space")), ("normals", ("true", "estimated"))):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {choices}, got {getattr(self, name)!r}")
        for name, least in (("shapes", 1), ("points", 1), ("keep", 1), ("normal_neighbors", 3)):
            if not getattr(self, name) >= least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        for name in ("max_angle_deg", "max_translation", "noise", "noise_clip"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.shared is not None and not 0 <= self.shared <= 1:
            raise ValueError(f"shared must be between 0 and 1, got {self.shared}")
        if self.crop != "none" and self.keep > self.points:
            raise ValueError(f"keep must be at most points, {self.points}, got {self.keep}")


PROTOCOLS = {
    # The paper's ModelNet40-CPU: composed, partial, unduplicated. Three shapes of 2048 points share a sixth by chance.
    "cpu": PairSettings(shapes=3, shared=1 / 6),
    # Ours: no point in common, noise, and normals from the noisy points, as between two real scans.
    "cpu-noisy": PairSettings(shapes=3, shared=0.0, noise=0.01, normals="estimated"),
    # The same from any start. The crops, from the same side in each frame, may leave half of a scan in common.
    "cpu-noisy-so3": PairSettings(shapes=3, shared=0.0, noise=0.01, normals="estimated", any_rotation=True),
    # One shape, partial and unduplicated: flat and round ones leave directions open.
    "modelnet40": PairSettings(),
    # The paper's ICL-NUIM: frames are complicated enough alone; normals come from the subsets.
    "icl-nuim": PairSettings(normals="estimated", flip_normals=True),
}


class PairDataset(Dataset):
    """Pairs made of a data set of shapes, as many as there are shapes.

    Args:
        shapes: a data set of shapes, such as `ModelNet40`, `SyntheticShapes` or `CloudFolder`.
        protocol: settings, or the name of a protocol: "cpu", "cpu-noisy", "cpu-noisy-so3", "modelnet40",
            "icl-nuim", or one of the published "dcp", "prnet", "prnet-noisy", "rpmnet-clean", "rpmnet-jitter",
            "rpmnet-crop".
        seed: of all that is random. The published test pairs have their index for a seed, whatever is given here.
        fresh: whether pairs differ from epoch to epoch, for training; `set_epoch` says which epoch it is.
        whole: whether pairs carry the clean and full shape, for the Chamfer distance.
    """

    def __init__(
        self,
        shapes: Shapes,
        protocol: str | PairSettings = "cpu",
        *,
        seed: int = 0,
        fresh: bool = False,
        whole: bool = False,
    ) -> None:
        if isinstance(protocol, str) and protocol not in PROTOCOLS and protocol not in PUBLISHED:
            raise ValueError(f"protocol must be one of {(*PROTOCOLS, *PUBLISHED)}, got {protocol!r}")
        if not isinstance(seed, int) or not 0 <= seed < 2**32:
            raise ValueError(f"seed must be an integer from 0 to 2^32 - 1, got {seed!r}")
        self.shapes, self.protocol, self.seed, self.fresh, self.whole = shapes, protocol, seed, fresh, whole
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # seen by workers that have started already

    def __len__(self) -> int:
        return len(self.shapes)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next: fresh pairs depend on it."""
        if epoch < 0:
            raise ValueError(f"epoch must not be negative, got {epoch}")
        self._epoch.fill_(epoch)

    def __getitem__(self, index: int) -> Pair:
        return self.pair(index, int(self._epoch))

    def pair(self, index: int, epoch: int) -> Pair:
        """The pair of an index in an epoch, whatever `set_epoch` said; the epoch matters to fresh pairs alone."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"index must be between {-len(self)} and {len(self) - 1}, got {index}")
        index %= len(self)
        random = self._random(index, epoch)
        if isinstance(self.protocol, str) and self.protocol in PUBLISHED:
            shape = _side(self.shapes[index])
            made = self._published(self.protocol, shape, index, random)
        else:
            settings = PROTOCOLS[self.protocol] if isinstance(self.protocol, str) else self.protocol
            shape = self._composed(settings, index, random)
            made = make_pair(shape, settings, random)
        return _pair(made, shape if self.whole else None)

    def _random(self, index: int, epoch: int) -> RandomState:
        # a test pair is no pair of any epoch
        return RandomState([self.seed, 1 + epoch if self.fresh else 0, index])

    def _published(self, protocol: str, shape: Side, index: int, random: RandomState) -> Made:
        if not self.fresh:
            return PUBLISHED[protocol](shape, lambda: RandomState(index), True)
        return PUBLISHED[protocol](shape, lambda: random, False)

    def _composed(self, settings: PairSettings, index: int, random: RandomState) -> Side:
        """The shape of that index, or that and others drawn at random, each moved."""
        if settings.shapes == 1:
            return _side(self.shapes[index])
        members = [index, *random.randint(0, len(self), size=settings.shapes - 1).tolist()]
        motion = settings.max_angle_deg, settings.max_translation
        sides = [_side(self.shapes[member]).moved(random_motion(random, *motion)) for member in members]
        return Side(np.concatenate([side.points for side in sides]), np.concatenate([side.normals for side in sides]))


def make_pair(shape: Side, settings: PairSettings, random: RandomState) -> Made:
    """Source, target and the true motion, out of a whole shape."""
    T_target_source = _motion(settings, random)
    for_source, for_target = draw_two(random, len(shape.points), settings.points, settings.shared)
    source, target = shape.rows(for_source), shape.rows(for_target).moved(T_target_source)
    if settings.noise > 0:
        source, target = (jitter(random, side, settings.noise, settings.noise_clip) for side in (source, target))
    if settings.crop == "viewpoint":
        source, target = near_viewpoint(random, source, target, keep=settings.keep)
    elif settings.crop == "half-space":
        share = settings.keep / settings.points
        source, target = half_space(random, source, share), half_space(random, target, share)
    if settings.normals == "estimated":
        source, target = _with_estimated_normals(source, target, settings.normal_neighbors)
    if settings.flip_normals:
        source, target = flip(random, source), flip(random, target)
    return Made(source, target, T_target_source, T_target_source)


def _motion(settings: PairSettings, random: RandomState) -> np.ndarray:
    if settings.any_rotation:
        return any_motion(random, settings.max_translation)
    return random_motion(random, settings.max_angle_deg, settings.max_translation)


def train_and_test(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The two halves of a data set's categories in alphabetical order: for training, and unseen, for testing."""
    ordered = sorted(names)
    half = len(ordered) // 2
    return ordered[:half], ordered[half:]


def _with_estimated_normals(source: Side, target: Side, neighbors: int) -> tuple[Side, Side]:
    if len(source.points) == len(target.points):  # both at once cost little more than one
        both = torch.from_numpy(np.stack([source.points, target.points]))
        normals = [*estimate_normals(both, k=neighbors).normals.numpy()]
    else:
        normals = [
            estimate_normals(torch.from_numpy(side.points), k=neighbors).normals.numpy() for side in (source, target)
        ]
    return source._replace(normals=normals[0]), target._replace(normals=normals[1])


def _side(shape: Shape) -> Side:
    return Side(shape.points.numpy(), shape.normals.numpy())


def _pair(made: Made, shape: Side | None) -> Pair:
    source, target, T_target_source, T_target_shape = made
    arrays = [source.points, target.points, source.normals, target.normals, T_target_source]
    if shape is not None:
        arrays.append(shape.moved(T_target_shape).points)
    return Pair(*(torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32)) for array in arrays))
