"""A softmax that has zeros where others have numbers too small to matter, which are slow."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

SMALLEST_SHARE = 1e-20
"""What is smaller is zero; even in double precision no sum of shares would notice it."""


def softmax(logits: Tensor) -> Tensor:
    """The softmax over the last dimension, whose smallest shares are zero, and so are their gradients.

    A match that is nearly certain has shares, and gradients, around the smallest numbers that there are. A processor
    takes many times as long for a product with these.

    Args:
        logits: (..., M); minus infinity where there is nothing to point to.

    Gradient: logits; of first order only.
    """
    shares: Tensor = _Softmax.apply(logits)
    return shares


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:  # type: ignore[override]
        shares = torch.threshold_(logits.softmax(dim=-1), SMALLEST_SHARE, 0.0)
        ctx.save_for_backward(shares)
        return shares

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        (shares,) = ctx.saved_tensors
        return torch.ops.aten._softmax_backward_data(gradient, shares, -1, shares.dtype)
