"""Doubly stochastic matches by alternate normalisation, with room for points that have no partner."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import pad


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

    Gradient: log_affinity.
    """
    absent = float("-inf") if slack else -1e9  # without slack an empty row would have no finite sum
    if source_mask is not None:
        log_affinity = log_affinity.masked_fill(~source_mask[:, :, None], absent)
    if target_mask is not None:
        log_affinity = log_affinity.masked_fill(~target_mask[:, None], absent)
    # The match is exp(A - u - v), and each half of a round finds one of u (B, N, 1) and v (B, 1, M) from the other. The
    # slack has the affinity one, whose logarithm is zero.
    more = int(slack)
    u, v = log_affinity.new_zeros(()), log_affinity.new_zeros(())
    for _ in range(iterations):
        u = pad(log_affinity - v, (0, more)).logsumexp(2, keepdim=True)
        v = pad(log_affinity - u, (0, 0, 0, more)).logsumexp(1, keepdim=True)
    return log_affinity - u - v
