"""Sinkhorn's normalisation as a scaling of rows and columns: matrix-vector products, and one exponential."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

LARGEST_LOGIT = 40.0
"""Affinities are cut off here, far from where their exponential overflows in single precision."""


class Match(NamedTuple):
    """What Sinkhorn makes of affinities: ``P_ij = u_i K_ij v_j``."""

    values: Tensor  # (B, N, M) the match; rows and columns sum to at most one, the rest being the slack's
    row_slack: Tensor  # (B, N) what each source point leaves to the slack
    column_slack: Tensor  # (B, M) likewise of the target


def scaled_sinkhorn(
    log_affinity: Tensor,
    iterations: int = 5,
    *,
    source_mask: Tensor | None = None,
    target_mask: Tensor | None = None,
) -> Match:
    """The match of `log_sinkhorn` with slack, followed by a last normalisation of rows.

    It costs one exponential for each entry, whatever the number of iterations, where the logarithmic form takes two in
    every iteration. The price is the range: affinities over ``exp(40)`` are cut off.

    Args:
        log_affinity: (B, N, M).
        iterations: number of rounds, rows first, then columns.
        source_mask: (B, N) bool, true where a source point is present; absent ones match nothing.
        target_mask: (B, M) bool likewise.

    Gradient: log_affinity.
    """
    affinity = log_affinity.clamp_max(LARGEST_LOGIT).exp()
    if source_mask is not None:
        affinity = affinity * source_mask[:, :, None]
    if target_mask is not None:
        affinity = affinity * target_mask[:, None]
    values, row_slack = _Scaled.apply(affinity, iterations)
    return Match(values, row_slack.squeeze(1), (1 - values.sum(1)).clamp_min(0))


class _Scaled(torch.autograd.Function):
    """``diag(u) K diag(v)`` and u (B, 1, N) from affinities K (B, N, M).

    Each half of a round is ``1 / (K v + 1)``, the slack having the affinity one. Its part in the gradient by K is an
    outer product, and all of them together are one matrix product. Vectors are rows, as torch multiplies a row with a
    batch of matrices several times faster than a column on a CPU.
    """

    @staticmethod
    def forward(ctx: Any, affinity: Tensor, iterations: int) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        v = [affinity.new_ones(len(affinity), 1, affinity.shape[2])]
        u: list[Tensor] = []
        for _ in range(iterations):
            u.append((v[-1] @ affinity.mT).add_(1).reciprocal_())
            v.append((u[-1] @ affinity).add_(1).reciprocal_())
        u.append((v[-1] @ affinity.mT).add_(1).reciprocal_())
        ctx.save_for_backward(affinity, torch.cat(u, dim=1), torch.cat(v, dim=1))
        return (affinity * u[-1].mT).mul_(v[-1]), u[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_values: Tensor, of_slack: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        affinity, u, v = ctx.saved_tensors
        u, v = (each.split(1, dim=1) for each in (u, v))
        weighted = of_values * affinity
        of_u, of_v = v[-1] @ weighted.mT + of_slack, u[-1] @ weighted
        lefts, rights = [], []
        for k in range(len(u) - 1, -1, -1):
            lefts.append(-u[k].square() * of_u)
            rights.append(v[k])
            step = lefts[-1] @ affinity
            of_v = of_v + step if k == len(u) - 1 else step
            if k > 0:
                lefts.append(u[k - 1])
                rights.append(-v[k].square() * of_v)
                of_u = rights[-1] @ affinity.mT
        direct = (of_values * u[-1].mT).mul_(v[-1])
        return direct.baddbmm_(torch.cat(lefts, dim=1).mT, torch.cat(rights, dim=1)), None
