"""Which pairs agree with each other: a rigid motion keeps distances, so right pairs support right pairs."""

from __future__ import annotations

import torch
from torch import Tensor


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
        weights = _with_best_one(weights)  # their powers would vanish in float32
        compatible = compatible * weights[:, :, None] * weights[:, None]
        compatible = compatible * (compatible @ compatible)
        support = _with_best_one(compatible.sum(-1))
        for _ in range(steps):
            support = _with_best_one((compatible @ support[..., None]).squeeze(-1))
        return support


def _with_best_one(values: Tensor) -> Tensor:
    """(B, K) so scaled that the largest of each row is one; zero where all are."""
    return values / values.amax(-1, keepdim=True).clamp_min(torch.finfo(values.dtype).tiny)
