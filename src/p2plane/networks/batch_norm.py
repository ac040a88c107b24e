"""BatchNorm as an affine map that is known before the linear map in front of it is applied.

The mean and variance of ``W h`` are ``W m`` and ``diag(W C W^T)``, with m and C those of h.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Statistics(NamedTuple):
    """What BatchNorm knows of a batch."""

    mean: Tensor  # (C,)
    variance: Tensor  # (C,) unbiased


class Layer(NamedTuple):
    weight: Tensor  # (C, D) of the map
    gain: Tensor  # (C,) of the BatchNorm
    bias: Tensor  # (C,)


class Moments(NamedTuple):
    """Mean and covariance of what goes into a layer, over all edges."""

    mean: Tensor  # (D,)
    covariance: Tensor  # (D, D), biased
    edges: int


def statistics_of_map(weight: Tensor, seen: Moments, unbiased: bool = False) -> Statistics:
    """Those of ``W h``, from the moments of h."""
    variance = ((weight @ seen.covariance) * weight).sum(1).clamp_min(0)  # rounding must not make it negative
    return Statistics(weight @ seen.mean, variance * (seen.edges / max(1, seen.edges - 1)) if unbiased else variance)


def running_statistics(norm: nn.BatchNorm1d) -> Statistics:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    return Statistics(norm.running_mean, norm.running_var)


def scale_and_shift(layer: Layer, seen: Statistics | Moments, eps: float) -> tuple[Tensor, Tensor]:
    """(C,) and (C,): the layer before its ReLU is ``scale * W h + shift``."""
    mean, variance = statistics_of_map(layer.weight, seen) if isinstance(seen, Moments) else seen
    scale = layer.gain * (variance + eps).rsqrt()
    return scale, layer.bias - mean * scale


def normalized_map(
    features: Tensor, weight: Tensor, norm: nn.BatchNorm1d, mask: Tensor | None
) -> tuple[Tensor, list[Statistics]]:
    """(P, C) map and BatchNorm of features (P, D) of points, of which (B, N) are present."""
    if not norm.training:
        scale, shift = scale_and_shift(Layer(weight, norm.weight, norm.bias), running_statistics(norm), norm.eps)
        return F.linear(features, scale[:, None] * weight, shift), []
    mapped = F.linear(features, weight)
    values = mapped if mask is None else mapped[mask.flatten()]
    # With a momentum of one, the running statistics are those of the batch.
    own = Statistics(torch.zeros_like(norm.bias).detach(), torch.zeros_like(norm.bias).detach())
    values = F.batch_norm(values, own.mean, own.variance, norm.weight, norm.bias, True, 1.0, norm.eps)
    if mask is not None:
        values = torch.zeros_like(mapped).masked_scatter(mask.flatten()[:, None], values)
    return values, [own]
