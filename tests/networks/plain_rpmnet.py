"""RPMNet without any of the tricks: all edges at once, torch's GroupNorm, the match in logarithms, every round anew.

It takes the parameters of our network and whole clouds without masks.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from p2plane import point_to_distribution, se3
from p2plane.matching.hard import hard_match
from p2plane.networks.rpmnet import RPMNet


def first_within(points: Tensor, radius: float, count: int) -> Tensor:
    """(N, count) indices for one cloud (N, 3), with the point itself in empty places."""
    rows = []
    for i, point in enumerate(points):
        near = [j for j in range(len(points)) if j != i and (points[j] - point).norm() <= radius]
        rows.append((near + [i] * count)[:count])
    return torch.tensor(rows)


def raw_channels(points: Tensor, normals: Tensor, indices: Tensor) -> Tensor:
    """(N, k, 10) of one cloud."""
    centers, center_normals = (each[:, None].expand(*indices.shape, 3) for each in (points, normals))
    d, others = points[indices] - centers, normals[indices]
    angles = [angle(center_normals, d), angle(others, d), angle(center_normals, others)]
    return torch.cat([centers, d, torch.stack([*angles, d.norm(dim=-1)], dim=-1)], dim=-1)


def angle(a: Tensor, b: Tensor) -> Tensor:
    sine, cosine = torch.linalg.cross(a, b).norm(dim=-1), (a * b).sum(-1)
    zero = (sine == 0) & (cosine == 0)
    return torch.where(zero, 0.0, torch.atan2(sine, torch.where(zero, 1.0, cosine)))


def features(network: RPMNet, points: Tensor, normals: Tensor) -> Tensor:
    """(B, N, C)."""
    config, layers = network.config, network.feat_extractor
    indices = [first_within(cloud, config.neighbor_radius, config.neighbors) for cloud in points.detach()]
    raw = torch.stack([raw_channels(*cloud) for cloud in zip(points, normals, indices, strict=True)])  # (B, N, k, 10)
    values = channel_first(layers.prepool, raw.permute(0, 3, 1, 2)).amax(-1)  # (B, C, N)
    return F.normalize(channel_first(layers.postpool, values).mT, dim=-1)


def channel_first(layers: torch.nn.Sequential, values: Tensor) -> Tensor:
    """Linear maps over the second dimension, everything else as it is."""
    for layer in layers:
        linear = isinstance(layer, torch.nn.Linear)
        values = layer(values.movedim(1, -1)).movedim(-1, 1) if linear else layer(values)
    return values


def parameters(network: RPMNet, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """beta (B,) and alpha (B,)."""
    values = torch.cat([F.pad(source, (0, 1), value=0.0), F.pad(target, (0, 1), value=1.0)], dim=1)
    values = channel_first(network.weights_net.prepool, values.mT).amax(-1)
    beta, alpha = F.softplus(network.weights_net.postpool(values)).unbind(-1)
    return beta, alpha


def sinkhorn(log_affinity: Tensor, iterations: int) -> Tensor:
    """(B, N, M) logarithm of the match, with a slack row and a slack column."""
    padded = F.pad(log_affinity, (0, 1, 0, 1))
    for _ in range(iterations):
        padded = torch.cat([padded[:, :-1] - padded[:, :-1].logsumexp(2, keepdim=True), padded[:, -1:]], dim=1)
        padded = torch.cat([padded[..., :-1] - padded[..., :-1].logsumexp(1, keepdim=True), padded[..., -1:]], dim=2)
    return padded[:, :-1, :-1]


def kabsch(source: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """(B, 4, 4) with weights divided by their sum plus a small number, as published."""
    weights = (weights / (weights.sum(-1, keepdim=True) + 1e-5))[..., None]
    source_center, target_center = ((weights * points).sum(1, keepdim=True) for points in (source, target))
    U, _, Vh = torch.linalg.svd((source - source_center).mT @ (weights * (target - target_center)))
    flip = torch.ones_like(U[:, 0])
    flip[:, 2] = torch.det(U @ Vh).sign()
    R = (Vh.mT * flip[:, None]) @ U.mT
    return se3.from_rotation_translation(R, (target_center - source_center @ R.mT)[:, 0])


def register(
    network: RPMNet,
    source: Tensor,
    target: Tensor,
    source_normals: Tensor,
    target_normals: Tensor,
) -> list[tuple[Tensor, Tensor]]:
    """The pose (B, 4, 4) and the match (B, N, M) of each round; a hard match is the likeliest one."""
    config, rounds = network.config, []
    T = torch.eye(4, dtype=source.dtype).expand(len(source), 4, 4)
    for _ in range(config.train_rounds if network.training else config.test_rounds):
        moved, moved_normals = se3.apply(T.detach(), source), se3.rotate(T.detach(), source_normals)
        f, g = features(network, moved, moved_normals), features(network, target, target_normals)
        beta, alpha = (each[:, None, None] for each in parameters(network, moved, target))
        distances = (f[:, :, None] - g[:, None]).square().sum(-1)
        log_match = sinkhorn(-beta * (distances - alpha), config.sinkhorn_iterations)
        match = log_match.exp()
        weights = match.sum(-1)
        if config.head.head == "point":
            T = kabsch(source, match @ target / (weights + 1e-5)[..., None], weights)
        else:
            pointers = match / (weights + 1e-5)[..., None]
            if config.plane_match == "hard":
                pointers = hard_match(log_match)
            tensors = torch.einsum("bnm,bmi,bmj->bnij", pointers, target_normals, target_normals)
            T = point_to_distribution(source, pointers @ target, tensors, weights).T_target_source
        rounds.append((T, match))
    return rounds
