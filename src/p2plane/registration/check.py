"""How well two scans fit together at a pose, and which motions the fit would not notice."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from p2plane.data.cloud import Cloud
from p2plane.geometry import se3, so3
from p2plane.geometry.neighbors import NeighborIndex
from p2plane.registration.result import Matches
from p2plane.registration.scan import spacing
from p2plane.solve.alignment import Alignment, alignment_at

INLIER_SPACINGS = 2.5  # partners are at most so many times as far apart as neighbours in the sparser cloud
INVISIBLE = 4e-3  # mean squared distance, in units of the cloud's radius, below which a motion goes unnoticed


class Overlap:
    """Two clouds with normals, ready to be compared at many poses."""

    def __init__(self, source: Cloud, target: Cloud) -> None:
        """Both with normals, zero where a point has none."""
        self.source, self.target = source, target
        self.spacing = max(spacing(source.points), spacing(target.points)) or 1.0
        self.inlier_distance = INLIER_SPACINGS * self.spacing
        self._of_target = NeighborIndex(target.points, engine="tree")
        self._of_source = NeighborIndex(source.points, engine="tree")

    def at(self, T_target_source: Tensor) -> Fit:
        """How they fit at a pose (4, 4)."""
        return Fit(self, T_target_source)

    def score(self, T_target_source: Tensor) -> float:
        """How much of both clouds fits, normals included, in [0, 1]: what candidates are ranked by."""
        forth = _fit(self.source, self.target, self._of_target, T_target_source, self.inlier_distance)
        T_source_target = se3.inverse(T_target_source)
        back = _fit(self.target, self.source, self._of_source, T_source_target, self.inlier_distance)
        return float((forth.mean() + back.mean()) / 2)


@dataclass(frozen=True)
class Fit:
    """Partners, and what they say, at one pose."""

    overlap: Overlap
    T_target_source: Tensor

    @cached_property
    def matches(self) -> Matches:
        """The source points that have a partner within the inlier distance, with Tukey's weights."""
        source, target, T = self.overlap.source, self.overlap.target, self.T_target_source
        moved = se3.apply(T, source.points)
        near = self.overlap._of_target.within(moved, self.overlap.inlier_distance, 1)
        rows = near.found[:, 0].nonzero()[:, 0]
        partners = near.indices[rows, 0]
        residuals = ((moved[rows] - target.points[partners]) * _normals(target)[partners]).sum(-1)
        weights = (1 - (near.distances[rows, 0] / self.overlap.inlier_distance).square()).square()
        return Matches(rows, partners, residuals, weights)

    @property
    def fitness(self) -> float:
        """Share of the source points that have a partner."""
        return len(self.matches.source) / len(self.overlap.source)

    @cached_property
    def inlier_rmse(self) -> float:
        """Root mean square distance between partners; zero where there are none."""
        moved = se3.apply(self.T_target_source, self.overlap.source.points[self.matches.source])
        return _rms((moved - self.overlap.target.points[self.matches.target]).norm(dim=-1))

    @property
    def plane_rmse(self) -> float:
        """Root mean square distance to the partners' planes."""
        return _rms(self.matches.residuals)

    @cached_property
    def cosines(self) -> Tensor:
        """(K,) |cos| of the angle between the normals of partners, of those that have both."""
        turned = se3.rotate(self.T_target_source, _normals(self.overlap.source)[self.matches.source])
        normals = _normals(self.overlap.target)[self.matches.target]
        known = (turned != 0).any(-1) & (normals != 0).any(-1)
        return (turned * normals).sum(-1).abs()[known].clamp(max=1.0)

    @property
    def normal_agreement(self) -> float:
        """Their median; zero where there are none."""
        return float(self.cosines.median()) if len(self.cosines) else 0.0

    @cached_property
    def alignment(self) -> Alignment:
        """The pose seen through its pairs: information, covariance, observability."""
        matches = self.matches
        return alignment_at(
            self.T_target_source[None],
            self.overlap.source.points[matches.source][None],
            self.overlap.target.points[matches.target][None],
            _normals(self.overlap.target)[matches.target][None],
            matches.weights[None],
        )

    @cached_property
    def visibility(self) -> Visibility:
        """How well the pairs see each of six motions."""
        matches = self.matches
        points = self.overlap.target.points[matches.target]
        normals = _normals(self.overlap.target)[matches.target]
        turned = se3.rotate(self.T_target_source, _normals(self.overlap.source)[matches.source])
        return visibility(points, turned, normals, matches.weights)

    @cached_property
    def information(self) -> Tensor:
        """(6, 6) of steps (omega, v), without what goes unnoticed; of noise alone, pairs taken as right."""
        steps, directions = self.visibility.steps, self.visibility.open
        seen = torch.eye(6, dtype=torch.float64) - directions.mT @ directions
        local = seen @ (steps.mT @ self.alignment.information[0] @ steps) @ seen
        motions = self.visibility.motions
        return motions.mT @ local @ motions


class Visibility(NamedTuple):
    """Which of six motions, rotation about a centre and translation in units of a scale, the pairs would notice."""

    eigenvalues: Tensor  # (6,) ascending: the mean squared distance, in units of scale^2, that a unit of motion causes
    directions: Tensor  # (6, 6) row k is the motion (omega, v) of eigenvalue k
    center: Tensor  # (3,)
    scale: float

    @property
    def open(self) -> Tensor:
        """(D, 6) the motions that are as good as invisible."""
        return self.directions[self.eigenvalues < INVISIBLE]

    @property
    def steps(self) -> Tensor:
        """(6, 6) from the motions here to steps (omega, v) about the origin, in the points' unit."""
        # omega x (p - center) + scale v = omega x p + (scale v + center x omega)
        matrix = torch.eye(6, dtype=torch.float64)
        matrix[3:, :3] = so3.hat(self.center)
        matrix[3:, 3:] *= self.scale
        return matrix

    @property
    def motions(self) -> Tensor:
        """(6, 6) back, from steps (omega, v) to the motions here."""
        matrix = torch.eye(6, dtype=torch.float64)
        matrix[3:, :3] = -so3.hat(self.center) / self.scale
        matrix[3:, 3:] /= self.scale
        return matrix


def visibility(points: Tensor, one_normals: Tensor, other_normals: Tensor, weights: Tensor) -> Visibility:
    """What pairs of surface elements (K, 3) see of a motion.

    The information matrix of planes, ``mean of J J^T`` with ``J = (p x n, n)``, takes noise of the normals for
    information: a wall looks rough, and a slide along it visible. Here one J has the source's normal and the other the
    target's. Their noise is independent, so that it cancels in the mean.
    """
    total = weights.sum()
    if len(points) == 0 or total <= 0:
        return Visibility(points.new_zeros(6), torch.eye(6, dtype=points.dtype), points.new_zeros(3), 1.0)
    weights = weights / total
    center = weights @ points
    local = points - center
    scale = float((weights @ local.square().sum(-1)).sqrt()) or 1.0
    agree = torch.where((one_normals * other_normals).sum(-1, keepdim=True) < 0, -1.0, 1.0)
    one, other = (
        torch.cat([torch.linalg.cross(local / scale, normals), normals], dim=-1)
        for normals in (agree * one_normals, other_normals)
    )
    product = one.mT @ (weights[:, None] * other)
    eigenvalues, vectors = torch.linalg.eigh((product + product.mT) / 2)
    return Visibility(eigenvalues, vectors.mT, center, scale)


def _fit(points: Cloud, others: Cloud, index: NeighborIndex, T: Tensor, reach: float) -> Tensor:
    """(N,) how well each point, once moved, fits to the nearest of the others, in [0, 1]."""
    near = index.within(se3.apply(T, points.points), reach, 1)
    nearness = (1 - (near.distances[:, 0] / reach).square()).clamp(min=0)
    return nearness * (se3.rotate(T, _normals(points)) * _normals(others)[near.indices[:, 0]]).sum(-1).square()


def _normals(cloud: Cloud) -> Tensor:
    assert cloud.normals is not None
    return cloud.normals


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt()) if len(values) else 0.0
