"""Small synthetic pairs with a known answer."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

import p2plane
from p2plane import Alignment, se3

DISTANCES = (
    "point_to_plane",
    "point_to_point",
    "point_to_distribution",
    "symmetric_point_to_plane",
    "plane_to_plane",
)


class MatchedPair(NamedTuple):
    """Row i of the source belongs to row i of everything else; `T_target_source` is the true motion."""

    source: Tensor  # (..., N, 3)
    target: Tensor  # (..., N, 3)
    normals: Tensor  # (..., N, 3) of the target, unit length
    weights: Tensor  # (..., N) positive
    T_target_source: Tensor  # (..., 4, 4)


def surface(
    *batch: int, points: int = 64, generator: torch.Generator, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Points and exact normals (*batch, N, 3) of random ellipsoids; nearly round ones hardly determine a rotation."""
    directions = torch.randn(*batch, points, 3, generator=generator, dtype=dtype)
    directions = directions / directions.norm(dim=-1, keepdim=True)
    axes = 0.5 + torch.rand(*batch, 1, 3, generator=generator, dtype=dtype)
    center = 0.3 * torch.randn(*batch, 1, 3, generator=generator, dtype=dtype)
    normals = directions / axes
    return directions * axes + center, normals / normals.norm(dim=-1, keepdim=True)


def matched_pair(
    *batch: int, points: int = 64, noise: float = 0.0, seed: int = 0, dtype: torch.dtype = torch.float64
) -> MatchedPair:
    """A surface, the same surface moved by a random motion from all of SE(3), and noise on the moved points."""
    generator = torch.Generator().manual_seed(seed)
    source, source_normals = surface(*batch, points=points, generator=generator, dtype=dtype)
    T = se3.random(*batch, generator=generator, dtype=dtype)
    target = se3.apply(T, source) + noise * torch.randn(source.shape, generator=generator, dtype=dtype)
    weights = 0.5 + torch.rand(*batch, points, generator=generator, dtype=dtype)
    return MatchedPair(source, target, se3.rotate(T, source_normals), weights, T)


def arrays(distance: str, pair: MatchedPair) -> tuple[Tensor, ...]:
    """What the public function of that name takes before the weights, made of a pair and its normals."""
    source_normals = se3.rotate(se3.inverse(pair.T_target_source), pair.normals)
    metric = {
        "point_to_plane": (pair.normals,),
        "point_to_point": (),
        "point_to_distribution": (_along_and_across(pair.normals, 1.0, 0.05),),
        "symmetric_point_to_plane": (source_normals, pair.normals),
        "plane_to_plane": (_along_and_across(source_normals, 0.01, 1.0), _along_and_across(pair.normals, 0.01, 1.0)),
    }
    return pair.source, pair.target, *metric[distance]


def align(distance: str, pair: MatchedPair, **settings: Any) -> Alignment:
    """The public function of that name on a pair, with its weights."""
    return getattr(p2plane, distance)(*arrays(distance, pair), pair.weights, **settings)


def _along_and_across(normals: Tensor, along: float, across: float) -> Tensor:
    """(..., 3, 3) matrices with one eigenvalue along the normal and another across it."""
    outer = normals[..., :, None] * normals[..., None, :]
    return along * outer + across * (torch.eye(3, dtype=normals.dtype) - outer)
