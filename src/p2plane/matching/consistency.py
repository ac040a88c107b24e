"""Which pairs agree with each other: a rigid motion keeps distances, so right pairs support right pairs."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from p2plane.matching.keypoints import take


class Supported(NamedTuple):
    """One partner for each point, and how much the other pairs support it."""

    partners: Tensor  # (B, N) rows of the target
    support: Tensor  # (B, N) from 0 to 1


def supported_partners(match: Tensor, source: Tensor, target: Tensor, tolerance: Tensor, candidates: int) -> Supported:
    """Of the likeliest candidates of each point, the one that agrees best with those of the others.

    Args:
        match: (B, N, M) not negative.
        source: (B, N, 3).
        target: (B, M, 3).
        tolerance: (B,) as in `consistency`.
        candidates: how many are looked at for each point; at most M.

    Gradient: none; the choice is discrete.
    """
    count = min(candidates, match.shape[-1])
    weights, rows = match.detach().topk(count, dim=-1)  # (B, N, k)
    points = source[:, :, None].expand(-1, -1, count, -1).flatten(1, 2)
    support = consistency(points, take(target, rows.flatten(1)), weights.flatten(1), tolerance).unflatten(
        1, (-1, count)
    )
    support, best = support.max(-1)
    return Supported(rows.gather(-1, best[..., None]).squeeze(-1), support)


def consistency(source: Tensor, partners: Tensor, weights: Tensor, tolerance: Tensor, steps: int = 10) -> Tensor:
    """(B, K) how much each pair is supported by the others, at most one, one for the best.

    Two pairs are compatible, ``c_ij = max(0, 1 - (|x_i - x_j| - |y_i - y_j|)^2 / tolerance^2)``, where their distances
    agree; and the more so, the more third pairs are compatible with both. The support is the leading eigenvector of
    that, as wrong pairs agree with each other by chance only.

    Args:
        source: (B, K, 3).
        partners: (B, K, 3); row i belongs to source row i.
        weights: (B, K) not negative, how much each pair counts for the others.
        tolerance: (B,) positive, what distances may differ by.
        steps: of the power iteration.

    Gradient: none.

    Reference: Leordeanu and Hebert, "A spectral technique for correspondence problems", ICCV 2005; the second order as
    in Chen et al., "SC2-PCR", CVPR 2022.
    """
    with torch.no_grad():  # gradient stops here: whom to believe is a choice
        apart = torch.cdist(source, source) - torch.cdist(partners, partners)
        compatible = (1 - (apart / tolerance[:, None, None]).square()).clamp_min(0)
        compatible = compatible * weights[:, :, None] * weights[:, None]
        compatible = compatible * (compatible @ compatible)
        support = compatible.sum(-1)
        for _ in range(steps):
            support = (compatible @ support[..., None]).squeeze(-1)
            support = support / support.amax(-1, keepdim=True).clamp_min(torch.finfo(support.dtype).tiny)
        return support
