"""Two surfaces between which many poses make rounds of ICP at once, with partners from a look-up table.

A round is one linearised step: the 6 x 6 system of ``W_i = n_i n_i^T + share I`` for each pose, in float32 and in local
units, which is enough to tell good poses from bad ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from p2plane.classical.grids import NearestGrid, extent_box
from p2plane.geometry import se3, so3
from p2plane.solve.inputs import free_directions

POSES_AT_ONCE = 32  # what a round of so many writes stays near the cache
DAMPING = 1e-6  # of a mean system, whose entries are about one; for clouds that determine next to nothing


class Surface(NamedTuple):
    """Points with normals, zero where a point has none."""

    points: Tensor  # (N, 3) float64
    normals: Tensor  # (N, 3)


class Partners(NamedTuple):
    """What K poses see; channels first, so that every channel is a plane of N numbers for each pose."""

    levers: Tensor  # (K, 3, N) from the moved centroid of the source to its points
    apart: Tensor  # (K, 3, N) from the partners to the moved points
    normals: Tensor  # (K, 3, N) of the partners
    fit: Tensor  # (K, N) how well a point fits to its partner, in [0, 1]


class Field:
    """Source and target in local units: both centred, and the target's diagonal is one.

    Poses (K, 4, 4) are float64 and between the centred, scaled clouds; `to_local` and `to_caller` translate.
    """

    def __init__(self, source: Surface, target: Surface, point_share: float, hold: Sequence[str] = ()) -> None:
        """Args:
        source: a few hundred points.
        target: some more.
        point_share: how much of the identity is added to ``n n^T``.
        hold: directions that keep their value in the caller's frames, as in `point_to_plane`.
        """
        low, high = extent_box(target.points)
        self.size = float((high - low).norm()) or 1.0
        self._source_center, self._target_center = source.points.mean(0), target.points.mean(0)
        self._points = ((source.points - self._source_center) / self.size).mT.float()  # (3, N)
        self._normals = source.normals.mT.float()
        local = (target.points - self._target_center) / self.size
        self._target = torch.cat([local, target.normals], dim=1).mT.float().contiguous()  # (6, M)
        self._nearest = NearestGrid(local.float())
        self._share, self._free = point_share, list(free_directions(hold))

    def to_local(self, T: Tensor) -> Tensor:
        """(K, 4, 4) of poses between the clouds as they were given."""
        R, t = T[:, :3, :3], T[:, :3, 3]
        return se3.from_rotation_translation(R, (t + R @ self._source_center - self._target_center) / self.size)

    def to_caller(self, T: Tensor) -> Tensor:
        """(K, 4, 4) poses between the clouds as they were given."""
        R, t = T[:, :3, :3], T[:, :3, 3]
        return se3.from_rotation_translation(R, self.size * t + self._target_center - R @ self._source_center)

    def overlap(self, T: Tensor, reach: float) -> Tensor:
        """(K,) mean fit of all points, float64."""
        return torch.cat([self._partners(some, reach).fit.mean(-1) for some in T.split(POSES_AT_ONCE)]).double()

    def step(self, T: Tensor, reach: float) -> Tensor:
        """(K, 4, 4) after one round of ICP with partners that are at most the reach away."""
        systems = [_moments(self._partners(some, reach)) for some in T.split(POSES_AT_ONCE)]
        hessian, slope = _system(torch.cat(systems).double() / self._points.shape[1], self._share)
        return self._moved(T, hessian, slope)

    def _partners(self, T: Tensor, reach: float) -> Partners:
        R, t = T[:, :3, :3].float(), T[:, :3, 3:].float()
        levers = R @ self._points
        moved = levers + t
        found = self._target[:, self._nearest(moved)].transpose(0, 1)  # (K, 6, N)
        points, normals = found.split(3, dim=1)
        apart = moved - points
        nearness = (1 - apart.square().sum(1) / reach**2).clamp_(min=0)
        return Partners(levers, apart, normals, nearness * ((R @ self._normals) * normals).sum(1).square())

    def _moved(self, T: Tensor, hessian: Tensor, slope: Tensor) -> Tensor:
        """(K, 4, 4) poses after the steps down a slope (K, 6), about the centroid, or about what is held."""
        R, t = T[:, :3, :3], T[:, :3, 3]
        arm = torch.zeros_like(t) if len(self._free) == 6 else R @ (self._source_center / self.size)
        # A turn omega about the caller's origin moves the centroid by omega x arm.
        change = torch.eye(6, dtype=T.dtype).repeat(len(T), 1, 1)
        change[:, 3:, :3] = -so3.hat(arm)
        change = change[:, :, self._free]  # (K, 6, F)
        damped = change.mT @ hessian @ change + DAMPING * torch.eye(len(self._free), dtype=T.dtype)
        free = torch.linalg.solve_ex(damped, change.mT @ slope[..., None]).result.squeeze(-1)
        step = torch.zeros_like(slope).index_copy(1, torch.tensor(self._free), -free)
        turn = so3.exp(step[:, :3])
        swing = ((turn @ arm[..., None]) - arm[..., None]).squeeze(-1)
        return se3.from_rotation_translation(turn @ R, t + step[:, 3:] + swing)


def _moments(partners: Partners) -> Tensor:
    """(K, 14, 14) weighted sums of the products of lever x normal, normal, distance, lever, one and apart."""
    levers, apart, normals, fit = partners
    rows = levers.new_empty(len(levers), 14, levers.shape[-1])
    torch.linalg.cross(levers, normals, dim=1, out=rows[:, :3])
    rows[:, 3:6] = normals
    torch.sum(normals * apart, dim=1, out=rows[:, 6])
    rows[:, 7:10] = levers
    rows[:, 10] = 1
    rows[:, 11:] = apart
    return torch.bmm(rows * fit[:, None], rows.mT)


def _system(moments: Tensor, point_share: float) -> tuple[Tensor, Tensor]:
    """(K, 6, 6) and (K, 6): ``J^T J`` and ``J^T r`` of distances to planes, and of those to points by their share.

    A point moves by ``omega x lever + b``, so that its own ``J = [-hat(lever), I]``.
    """
    square, mean, total = moments[:, 7:10, 7:10], moments[:, 7:10, 10], moments[:, 10, 10]
    identity = torch.eye(3, dtype=moments.dtype)
    trace = square.diagonal(dim1=1, dim2=2).sum(-1)[:, None, None]
    turns, mixed = trace * identity - square, so3.hat(mean)
    by_points = torch.cat(
        [torch.cat([turns, mixed], dim=2), torch.cat([mixed.mT, total[:, None, None] * identity], dim=2)], dim=1
    )
    torque = moments[:, 7:10, 11:]  # sum of lever apart^T, of which the cross product is the skew part
    pull = torch.cat([_skew_part(torque), moments[:, 10, 11:]], dim=1)
    return moments[:, :6, :6] + point_share * by_points, moments[:, :6, 6] + point_share * pull


def _skew_part(product: Tensor) -> Tensor:
    """(K, 3) the sum of a x b, out of that of ``a b^T`` (K, 3, 3)."""
    skew = product - product.mT
    return torch.stack([skew[:, 1, 2], skew[:, 2, 0], skew[:, 0, 1]], dim=1)
