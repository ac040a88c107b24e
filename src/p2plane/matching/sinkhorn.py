"""Doubly stochastic matches by alternate normalisation, with room for points that have no partner."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from p2plane.matching.halves import gradient_factors, scales


def log_sinkhorn(
    log_affinity: Tensor,
    iterations: int = 5,
    *,
    slack: bool = True,
    source_mask: Tensor | None = None,
    target_mask: Tensor | None = None,
) -> Tensor:
    """(B, N, M) logarithm of the match after so many rounds: rows first, then columns.

    Args:
        log_affinity: (B, N, M).
        iterations: number of rounds.
        slack: whether there is one more row and one more column of affinity one, which take what has no partner; they
            are not normalised themselves.
        source_mask: (B, N) bool, true where a source point is present; absent ones match nothing.
        target_mask: (B, M) bool likewise.

    Gradient: log_affinity; of first order only.
    """
    absent = float("-inf") if slack else -1e9  # without slack an empty row would have no finite sum
    if source_mask is not None:
        log_affinity = log_affinity.masked_fill(~source_mask[:, :, None], absent)
    if target_mask is not None:
        log_affinity = log_affinity.masked_fill(~target_mask[:, None], absent)
    log_match: Tensor = _InLogarithms.apply(log_affinity, iterations, slack)
    return log_match


def sinkhorn_match_(
    log_affinity: Tensor,
    iterations: int = 5,
    *,
    source_mask: Tensor | None = None,
    target_mask: Tensor | None = None,
) -> Tensor:
    """(B, N, M) the match itself, ``log_sinkhorn(...).exp()``, in the memory of the affinities, which are lost.

    It takes one exponential for each entry, whatever the number of rounds, and no memory but the match.

    Args:
        log_affinity: (B, N, M).
        iterations: number of rounds, rows first, then columns.
        source_mask: (B, N) bool, true where a source point is present; absent ones match nothing.
        target_mask: (B, M) bool likewise.

    Gradient: log_affinity; of first order only.
    """
    if not _scales_are_floats(log_affinity, iterations):
        return log_sinkhorn(log_affinity, iterations, source_mask=source_mask, target_mask=target_mask).exp()
    if source_mask is not None:
        log_affinity = log_affinity.masked_fill_(~source_mask[:, :, None], float("-inf"))
    if target_mask is not None:
        log_affinity = log_affinity.masked_fill_(~target_mask[:, None], float("-inf"))
    match: Tensor = _Scaled.apply(log_affinity, iterations)
    return match


def _scales_are_floats(log_affinity: Tensor, iterations: int) -> bool:
    """Whether the scales of so many rounds are within the range of floats, with much to spare, for any affinities.

    With slack, v grows in a round by ``log(1 + N)`` at most, and u falls by no more than v has grown.
    """
    room = 2 / 3 * math.log(torch.finfo(log_affinity.dtype).max)
    return iterations * math.log(1 + max(log_affinity.shape[1:])) < room


class _Scaled(torch.autograd.Function):
    """``P = diag(u) K diag(v)`` with ``K = exp(A - m)``, m (B, N, 1) the largest entry of a row, or zero, the slack's.

    Of what is large, P alone is kept. Seen from it, the last scales are one: with ``u / u_last`` and ``v / v_last`` in
    the place of all u and v, P takes the place of K.
    """

    @staticmethod
    def forward(ctx: Any, log_affinity: Tensor, iterations: int) -> Tensor:  # type: ignore[override]
        largest = log_affinity.amax(2, keepdim=True).clamp_min_(0)
        # Numbers below the smallest normal one are slow, and far too small to be seen.
        tiny = torch.finfo(log_affinity.dtype).tiny
        affinity = torch.threshold_(log_affinity.sub_(largest).exp_(), tiny, 0.0)
        u, v = scales(affinity, largest.neg().exp_().mT, 2 * iterations)
        match = affinity.mul_(u[:, -1:].mT).mul_(v[:, -1:])
        ctx.mark_dirty(log_affinity)
        ctx.save_for_backward(match, u / u[:, -1:], v / v[:, -1:])
        return match

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        match, u, v = ctx.saved_tensors
        by_log = gradient * match
        lefts, rights = gradient_factors(match, u, v, by_log.sum(2)[:, None], by_log.sum(1)[:, None])
        return by_log.addcmul_(lefts.mT @ rights, match), None


class _InLogarithms(torch.autograd.Function):
    """The match is exp(A - u - v), and each half of a round finds one of u (B, N, 1) and v (B, 1, M) from the other.

    Only these are kept for backward, besides A: with ``P = exp(A - u - v)``, u or v the sum that was last taken, the
    gradient by that sum comes to A through P, and to the other through the sums of P.
    """

    @staticmethod
    def forward(ctx: Any, log_affinity: Tensor, iterations: int, slack: bool) -> Tensor:  # type: ignore[override]
        u, v = log_affinity.new_zeros(1, 1, 1), log_affinity.new_zeros(1, 1, 1)
        sums = [v]
        for _ in range(iterations):
            u = _log_sum(log_affinity - v, 2, slack)
            v = _log_sum(log_affinity - u, 1, slack)
            sums += [u, v]
        ctx.save_for_backward(log_affinity, *sums)
        return (log_affinity - u).sub_(v)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        log_affinity, *sums = ctx.saved_tensors
        by_affinity = gradient.clone()
        by_last, by_other = -gradient.sum(1, keepdim=True), -gradient.sum(2, keepdim=True)  # v was the last sum
        for i in range(len(sums) - 1, 0, -1):
            share = (log_affinity - sums[i]).sub_(sums[i - 1]).exp_().mul_(by_last)
            by_affinity += share
            by_last = by_other - share.sum(1 if i % 2 else 2, keepdim=True)
            by_other = torch.zeros_like(by_last[:1, :1, :1])  # a sum is seen by the result only if it is the last
        return by_affinity, None, None


def _log_sum(values: Tensor, dim: int, slack: bool) -> Tensor:
    """Logarithm of the sum of exponentials, and of one more, with slack, whose logarithm is zero."""
    total = values.logsumexp(dim, keepdim=True)
    return torch.logaddexp(total, torch.zeros_like(total)) if slack else total
