"""What `register` returns for two scans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import Tensor

from p2plane.data.cloud import Cloud
from p2plane.registration.confidence import Evidence


@dataclass(frozen=True)
class Candidate:
    """A pose that was weighed."""

    origins: tuple[str, ...]
    """Who proposed it: "initial", "sweep", "ransac", the name of a model ...; several where they agree."""
    T_target_source: Tensor
    """(4, 4) float64."""
    fitness: float
    """Share of the source points that have a target point within the inlier distance, once refined."""
    plane_rmse: float
    """Root mean square distance of those points to the planes of their partners, in the target's units."""
    score: float
    """What the candidates are ranked by; higher is better."""


class Spread(NamedTuple):
    """How far a pose may be off, root mean square."""

    angle: float
    """Radians."""
    shift: float
    """Of the middle of the overlap, in the target's units."""


@dataclass(frozen=True)
class Matches:
    """The pairs that the final pose brings together, for pictures and for whoever wants to look closer."""

    source: Tensor
    """(K,) int64, rows of `Registration.source`."""
    target: Tensor
    """(K,) int64, rows of `Registration.target`."""
    residuals: Tensor
    """(K,) signed distance to the partner's plane, in the target's units."""
    weights: Tensor
    """(K,) in [0, 1], what the robust kernel gave each pair."""


@dataclass(frozen=True, repr=False)
class Registration:
    """The pose between two scans, and how far it can be trusted.

    Lengths are in the target's units. Covariance and information are in the coordinates (omega, v) of the library,
    rotation first, in the target frame; they know of noise alone and take the pairs as right, so they are optimistic.
    """

    T_target_source: Tensor
    """(4, 4) float64, maps source coordinates to target coordinates."""
    confident: bool
    """Whether the answer may be used without a second look."""
    confidence: float
    """The estimated probability that the pose is right, in [0, 1]."""
    evidence: Evidence
    """What that estimate is made of."""
    fitness: float
    """Share of the source points that have a target point within `inlier_distance`."""
    inlier_rmse: float
    """Root mean square distance of those points to their partners."""
    plane_rmse: float
    """The same to the planes of their partners."""
    normal_agreement: float
    """Median of |cos| of the angle between the normals of partners."""
    inlier_distance: float
    """How near partners must be."""
    information: Tensor
    """(6, 6) float64."""
    covariance: Tensor
    """(6, 6) float64, zero along held directions, and undetermined ones unless an initial covariance says more."""
    spread: Spread | None
    """How far poses of halves of the points lie from this one along the determined directions, which knows of wrong
    pairs too; and along the others, how sure the initial covariance is. None where the points that have partners are
    too few to say. Where a scan has more than 3,000, it is that of a thinner scan, and larger than the pose's own."""
    undetermined: tuple[str, ...]
    """The directions that the geometry leaves open, in words: "slides along x", "turns about z"."""
    directions: Tensor
    """(D, 6) float64 those directions as motions (omega, v) about `center`, v in units of `size`."""
    eigenvalues: Tensor
    """(6,) float64, ascending: how well each of six motions is seen, as mean squared distance in units of the overlap's
    radius; those of the undetermined directions come first."""
    center: Tensor
    """(3,) float64 the middle of the overlap, in the target frame."""
    size: float
    """Diagonal of the target's bounding box."""
    warnings: tuple[str, ...]
    """What a careful person would want to know."""
    timings: Mapping[str, float]
    """Seconds by stage, in the order of the stages."""
    candidates: tuple[Candidate, ...]
    """The poses that were weighed, best first."""
    source: Cloud
    """The source as it was compared: thinned, with normals, in its own frame."""
    target: Cloud
    """The target likewise."""
    matches: Matches
    """The pairs of these two clouds that the pose brings together."""

    @property
    def R(self) -> Tensor:
        """(3, 3) rotation."""
        return self.T_target_source[:3, :3]

    @property
    def t(self) -> Tensor:
        """(3,) translation."""
        return self.T_target_source[:3, 3]

    def __repr__(self) -> str:
        """Short: the clouds and their pairs are not printed."""
        pose = np.array2string(self.T_target_source.numpy(), precision=4, suppress_small=True, prefix=" " * 16)
        parts = [
            f"T_target_source={pose}",
            f"confident={self.confident}, confidence={self.confidence:.3f}",
            f"fitness={self.fitness:.3f}, plane_rmse={self.plane_rmse:.3g}, inlier_rmse={self.inlier_rmse:.3g}",
            f"undetermined={self.undetermined}",
            f"warnings={self.warnings}",
        ]
        return "Registration(\n" + "".join(f"    {part},\n" for part in parts) + ")"
