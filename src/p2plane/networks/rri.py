"""Rotation-invariant features of points (RRI): what a point sees of its neighbours from the middle of its cloud.

Chen, Y. et al., ClusterNet (CVPR 2019), in the form that DeepGMR uses.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from p2plane.geometry.neighbors import gather, knn
from p2plane.solve.inputs import one_of

ORIENTATIONS = ("kernel", "numpy")


def mean_point(points: Tensor, mask: Tensor | None = None) -> Tensor:
    """(B, 1, 3) the mean of the present points; absent ones are zero. Gradient: points."""
    if mask is None:
        return points.mean(1, keepdim=True)
    return points.sum(1, keepdim=True) / mask.sum(1).clamp(min=1)[:, None, None]


@torch.no_grad()  # gradient stops here: the features are an input of the network, as published
def rri_features(points: Tensor, k: int = 20, mask: Tensor | None = None, *, orientation: str = "kernel") -> Tensor:
    """Features that do not change when the cloud is moved.

    Seen from the mean of the cloud, a point p and each of its neighbours q give four numbers: ``|p|``, ``|q|``, the
    angle theta between them, and phi, by how much q turns about p to come to the next of the other neighbours.

    Args:
        points: (B, N, 3), zero where absent.
        k: neighbours of each point, the nearest first. A cloud with fewer repeats those it has, in the same order.
        mask: (B, N) bool, true where a point is present.
        orientation: which way phi turns. The published program has two versions that turn against each other: its CUDA
            "kernel" counts from q to the other, its fallback in "numpy" from the other to q. Weights fit one of them.

    Returns:
        (B, N, 4 k) in the order ``|p|, |q|, theta, phi`` of the first neighbour, of the second, and so on.

    Gradient: none.
    """
    one_of("orientation", orientation, ORIENTATIONS)
    if points.shape[1] < 2:
        return points.new_zeros(*points.shape[:2], 4 * k)
    points = points - mean_point(points, mask)
    if mask is not None:
        points = points.where(mask[..., None], 0.0)
    neighbors = knn(points, points, min(k + 1, points.shape[1]), mask=mask, query_mask=mask)
    others, found = neighbors.indices[..., 1:], neighbors.found[..., 1:]  # the point itself comes first
    p, q = points[:, :, None], gather(points, others)  # (B, N, 1, 3), (B, N, k, 3)
    p_length, q_length = p.norm(dim=-1), q.norm(dim=-1)
    tiny = torch.finfo(points.dtype).tiny
    cosine = ((p * q).sum(-1) / (p_length * q_length).clamp_min(tiny)).clamp(-1, 1)
    # As published: p is not of unit length here, so this is not quite the part of q across p.
    across = q - cosine[..., None] * p
    axis = p / p_length[..., None].clamp_min(tiny)
    phi = _next_turn(across, axis if orientation == "kernel" else -axis, found)
    features = torch.stack([p_length.expand_as(phi), q_length, cosine.acos(), phi], dim=-1)  # (B, N, k, 4)
    return _repeated(features, found.sum(-1), k).flatten(2)


def _next_turn(across: Tensor, axis: Tensor, found: Tensor) -> Tensor:
    """(B, N, k) the smallest angle in [0, 2 pi) about the axis from each vector (B, N, k, 3) to another one."""
    sines = torch.linalg.cross(axis.expand_as(across), across) @ across.mT  # axis . (a_i x a_j)
    angles = torch.atan2(sines, across @ across.mT)  # (B, N, k, k)
    angles = torch.where(angles < 0, angles + 2 * math.pi, angles)
    itself = torch.eye(across.shape[-2], dtype=torch.bool, device=across.device)
    smallest = angles.masked_fill(itself | ~found[..., None, :], float("inf")).amin(-1)
    return smallest.where(smallest < float("inf"), 0.0)  # there is no other


def _repeated(features: Tensor, counts: Tensor, k: int) -> Tensor:
    """(B, N, k, C) the first `counts` (B, N) of the rows (B, N, L, C), over and over; zeros where there are none."""
    ranks = torch.arange(k, device=features.device) % counts.clamp(min=1)[..., None]  # (B, N, k)
    chosen = features.gather(2, ranks[..., None].expand(-1, -1, -1, features.shape[-1]))
    return chosen.where(counts[..., None, None] > 0, 0.0)
