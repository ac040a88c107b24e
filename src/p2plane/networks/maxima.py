"""The largest value among the edges of a point, and where it is."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def largest(values: Tensor) -> tuple[Tensor, Tensor]:
    """(n, C) maxima over the second dimension of (n, k, C), and (n, C) where they are first.

    As an image (n, C, k, 1) whose channels are last in memory: many times faster than torch.max (2.13).
    """
    if torch.compiler.is_compiling():
        return values.max(1)
    image = values[:, :, None].permute(0, 3, 1, 2)
    maxima, places = F.max_pool2d(image, (values.shape[1], 1), return_indices=True)
    return maxima.flatten(1), places.flatten(1)
