"""Sinkhorn's normalisation as a scaling of rows and columns: matrix-vector products, and one exponential."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from p2plane.matching.halves import gradient_factors, scales

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
    """``diag(u) K diag(v)`` and u (B, 1, N) from affinities K (B, N, M), rows having the last word."""

    @staticmethod
    def forward(ctx: Any, affinity: Tensor, iterations: int) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        u, v = scales(affinity, 1.0, 2 * iterations + 1)
        ctx.save_for_backward(affinity, u, v)
        return (affinity * u[:, -1, :, None]).mul_(v[:, -1:]), u[:, -1:].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_values: Tensor, of_slack: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        affinity, u, v = ctx.saved_tensors
        last_u, last_v = u[:, -1:], v[:, -1:]
        weighted = of_values * affinity
        of_u, of_v = last_v @ weighted.mT + of_slack, last_u @ weighted
        lefts, rights = gradient_factors(affinity, u, v, of_u, of_v)
        return (of_values * last_u.mT).mul_(last_v).baddbmm_(lefts.mT, rights), None
