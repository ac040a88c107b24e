"""Hard matches that can be trained: one target point for each source point, with the gradient of a soft one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def gumbel_noise(shape: torch.Size, *, like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Samples of the standard Gumbel distribution, ``-log(-log u)`` with u uniform.

    Three times as fast as by torch's exponential samples (2.13, CPU).
    """
    noise = torch.rand(shape, dtype=like.dtype, device=like.device, generator=generator)
    return noise.clamp_min_(torch.finfo(like.dtype).tiny).log_().neg_().log_().neg_()


def hard_match(
    logits: Tensor,
    temperature: Tensor | float = 1.0,
    *,
    sample: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """(B, N, M) one-hot rows forward, ``softmax((logits + q) / temperature)`` backward (straight through).

    Args:
        logits: (B, N, M); minus infinity where a target point is absent.
        temperature: positive, a number or (B, 1, 1). The choice does not depend on it, the gradient does.
        sample: whether q is Gumbel noise, so that row i picks j with probability ``softmax(logits)_ij``; otherwise q is
            zero, and the largest logit is picked.
        generator: of the noise.

    Gradient: logits, temperature.
    """
    if sample:
        logits = gumbel_noise(logits.shape, like=logits, generator=generator).add_(logits)
    if isinstance(temperature, Tensor) or temperature != 1:
        logits = logits / temperature
    match: Tensor = _OneHot.apply(logits.softmax(dim=-1))
    return match


class _OneHot(torch.autograd.Function):
    """Ones where rows have their largest entries, zeros elsewhere; the gradient passes straight through."""

    @staticmethod
    def forward(ctx: Any, soft: Tensor) -> Tensor:  # type: ignore[override]
        return torch.zeros_like(soft).scatter_(-1, soft.argmax(dim=-1, keepdim=True), 1.0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient
