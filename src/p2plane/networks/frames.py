"""Clouds as Tessera looks at them: centred, in units of their radius, and both sides in one batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from p2plane.geometry import se3
from p2plane.networks.door import Clouds


@dataclass(frozen=True)
class Frames:
    """Where the clouds are, and how large."""

    source_center: Tensor  # (B, 1, 3)
    target_center: Tensor  # (B, 1, 3)
    scale: Tensor  # (B, 1, 1) root mean square radius, of both

    def to_local(self, T_target_source: Tensor) -> Tensor:
        """(B, 4, 4) the motion between the centred and scaled clouds."""
        moved = se3.apply(T_target_source, self.source_center) - self.target_center
        return se3.from_rotation_translation(T_target_source[:, :3, :3], (moved / self.scale).squeeze(1))


class Both(NamedTuple):
    """B sources and then their B targets, padded at the end to the longer ones."""

    points: Tensor  # (2 B, P, 3)
    normals: Tensor  # (2 B, P, 3)
    mask: Tensor | None  # (2 B, P) bool, None where nothing is absent


def frames_of(clouds: Clouds) -> Frames:
    """The frames of a batch of clouds; they have no gradient."""
    # gradient stops here: a frame is a choice of coordinates
    sides = (clouds.source.detach(), clouds.source_mask), (clouds.target.detach(), clouds.target_mask)
    centers = [mean_point_wise(points, mask)[:, None] for points, mask in sides]
    squares = [
        mean_point_wise((points - center).square().sum(-1), mask)
        for (points, mask), center in zip(sides, centers, strict=True)
    ]
    scale = ((squares[0] + squares[1]) / 2).sqrt()
    scale = torch.where(scale > 0, scale, 1.0)  # a point has no size
    return Frames(centers[0], centers[1], scale[:, None, None])


def side_by_side(clouds: Clouds, frames: Frames) -> Both:
    """Both sides in their frames, zero where a point is absent; without gradient."""
    assert clouds.source_normals is not None
    assert clouds.target_normals is not None
    source = (clouds.source.detach() - frames.source_center) / frames.scale
    target = (clouds.target.detach() - frames.target_center) / frames.scale
    points, normals = _stacked(source, target), _stacked(clouds.source_normals, clouds.target_normals)
    if clouds.source_mask is None and clouds.target_mask is None and source.shape == target.shape:
        return Both(points, normals.detach(), None)
    masks = [
        torch.ones(side.shape[:2], dtype=torch.bool, device=side.device) if mask is None else mask
        for side, mask in ((source, clouds.source_mask), (target, clouds.target_mask))
    ]
    mask = _stacked(*masks)
    return Both(points.masked_fill(~mask[..., None], 0.0), normals.detach(), mask)


def mean_point_wise(values: Tensor, mask: Tensor | None) -> Tensor:
    """(B, ...) mean of values (B, N, ...) over the present points."""
    if mask is None:
        return values.mean(1)
    shape = (*mask.shape, *(1,) * (values.ndim - 2))
    return torch.where(mask.view(shape), values, 0.0).sum(1) / mask.sum(1).view(-1, *shape[2:])


def spacing_of(apart: Tensor, mask: Tensor | None) -> Tensor:
    """(B,) mean distance of a point from the nearest other, from all distances (B, S, S)."""
    alone = torch.eye(apart.shape[-1], dtype=torch.bool, device=apart.device)
    if mask is not None:
        alone = alone | ~mask[:, None]
    nearest = apart.masked_fill(alone, float("inf")).amin(-1)
    nearest = torch.where(nearest.isfinite(), nearest, 1.0)  # a single point has no other
    return mean_point_wise(nearest, mask).clamp_min(1e-6)


def _stacked(source: Tensor, target: Tensor) -> Tensor:
    """(2 B, P, ...) from (B, N, ...) and (B, M, ...)."""
    most = max(source.shape[1], target.shape[1])
    unchanged = (0, 0) * (source.ndim - 2)
    return torch.cat([pad(side, (*unchanged, 0, most - side.shape[1])) for side in (source, target)])
