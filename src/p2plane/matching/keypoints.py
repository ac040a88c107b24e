"""Which points to go on with: those with the strongest features."""

from __future__ import annotations

from torch import Tensor


def strongest(features: Tensor, count: int, mask: Tensor | None = None) -> Tensor:
    """(B, K) rows of the features (B, N, C) with the largest norms, in any order.

    There are fewer than `count` where N is less. Absent rows come last: they are taken only where too few are present.

    Args:
        mask: (B, N) bool, true where a point is present.

    Gradient: none; the choice is discrete.
    """
    norms = features.detach().norm(dim=-1)  # gradient stops here: the choice is discrete
    if mask is not None:
        norms = norms.masked_fill(~mask, -1.0)
    return norms.topk(min(count, norms.shape[1]), dim=-1, sorted=False).indices


def take(values: Tensor, rows: Tensor) -> Tensor:
    """(B, K, C) rows of values (B, N, C), or (B, K) of (B, N)."""
    if values.ndim == 2:
        return values.gather(1, rows)
    return values.gather(1, rows[..., None].expand(-1, -1, values.shape[-1]))
