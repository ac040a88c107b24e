"""The halves of Sinkhorn's rounds as matrix-vector products: ``u = 1 / (K v + s)``, then ``v = 1 / (K^T u + 1)``.

K (B, N, M) are affinities, s (B, 1, N) those of the rows with the slack. Vectors are rows, as torch multiplies a row
with a batch of matrices several times faster than a column on a CPU.
"""

from __future__ import annotations

import torch
from torch import Tensor


def scales(affinity: Tensor, slack: Tensor | float, halves: int) -> tuple[Tensor, Tensor]:
    """All u (B, k, N) in the order in which they were found, and all v (B, l, M), of which the first is one.

    Args:
        affinity: (B, N, M) not negative.
        slack: (B, 1, N), or one number for all.
        halves: how many, rows first.
    """
    u: list[Tensor] = []
    v = [affinity.new_ones(len(affinity), 1, affinity.shape[2])]
    for half in range(halves):
        if half % 2 == 0:
            u.append((v[-1] @ affinity.mT).add_(slack).reciprocal_())
        else:
            v.append((u[-1] @ affinity).add_(1).reciprocal_())
    return torch.cat(u, dim=1), torch.cat(v, dim=1)


def gradient_factors(affinity: Tensor, u: Tensor, v: Tensor, of_u: Tensor, of_v: Tensor) -> tuple[Tensor, Tensor]:
    """(B, K, N) and (B, K, M) whose product ``left^T right`` is the gradient by the affinities.

    The part of each half is an outer product, and all of them together are one matrix product.

    Args:
        affinity, u, v: those of `scales`.
        of_u: (B, 1, N) the gradient by the last u.
        of_v: (B, 1, M) by the last v.
    """
    rows, columns = list(u.split(1, dim=1)), list(v.split(1, dim=1))
    lefts, rights = [], []
    while rows:
        if len(rows) == len(columns):  # the last half was one of rows
            last = rows.pop()
            lefts.append(-last * (last * of_u))  # in this order nothing overflows
            rights.append(columns[-1])
            of_u, of_v = torch.zeros_like(of_u), of_v + lefts[-1] @ affinity
        else:
            last = columns.pop()
            lefts.append(rows[-1])
            rights.append(-last * (last * of_v))
            of_u, of_v = of_u + rights[-1] @ affinity.mT, torch.zeros_like(of_v)
    return torch.cat(lefts, dim=1), torch.cat(rights, dim=1)
