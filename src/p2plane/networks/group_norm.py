"""GroupNorm as an affine map that is known before the linear map in front of it is applied.

It takes its statistics over channels and points of one cloud, so that each cloud has a map of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def normalized_layers(channels: int, widths: tuple[int, ...], groups: tuple[int, ...]) -> nn.Sequential:
    """Linear map, GroupNorm and ReLU for each width."""
    layers = nn.Sequential()
    for width, group in zip(widths, groups, strict=True):
        layers.extend([nn.Linear(channels, width), nn.GroupNorm(group, width), nn.ReLU()])
        channels = width
    return layers


def maps_and_norms(layers: nn.Sequential) -> Iterator[tuple[nn.Linear, nn.GroupNorm]]:
    """The linear maps that have a GroupNorm, with it."""
    modules = list(layers)
    for linear, norm in zip(modules[0::3], modules[1::3], strict=False):
        assert isinstance(linear, nn.Linear)
        assert isinstance(norm, nn.GroupNorm)
        yield linear, norm


def normalized_layer(linear: nn.Linear, norm: nn.GroupNorm, values: Tensor, mask: Tensor | None) -> Tensor:
    """(B, N, O) linear map, GroupNorm over the present points, ReLU, of values (B, N, C)."""
    folded = folded_map(linear, norm, moments_of(values, mask)).to(values.dtype)
    return torch.baddbmm(folded[:, None, :, -1], values, folded[..., :-1].mT).relu()


def moments_of(values: Tensor, mask: Tensor | None) -> Tensor:
    """(B, C + 1, C + 1) sums of ``h h^T`` over the present points, for values (B, N, C) and a one after them."""
    values = F.pad(values, (0, 1), value=1.0)
    return values.mT @ (values if mask is None else values * mask[..., None])


def folded_map(linear: nn.Linear, norm: nn.GroupNorm, moments: Tensor) -> Tensor:
    """(B, O, C + 1) a linear map and the GroupNorm after it as one map for each cloud, in the precision of the moments.

    The statistics of what the linear map makes follow from the moments (B, C + 1, C + 1) of what it takes.
    """
    weight = linear.weight.to(moments.dtype)
    products = weight @ moments[:, :-1]  # (B, O, C + 1)
    squares = (products[..., :-1] * weight).sum(-1)
    scale, shift = scale_and_shift(linear, norm, products[..., -1], squares, moments[:, -1, -1])
    return torch.cat([scale[..., None] * weight, shift[..., None]], dim=-1)


def scale_and_shift(
    linear: nn.Linear, norm: nn.GroupNorm, sums: Tensor, squares: Tensor, count: Tensor
) -> tuple[Tensor, Tensor]:
    """(B, O) each: what the GroupNorm after a linear map ``W h + b`` multiplies ``W h`` with, and adds.

    Args:
        sums: (B, O) of ``W h``.
        squares: (B, O) sums of its squares.
        count: (B,) how many there are of each.
    """
    # In float64, as squares of means are subtracted from means of squares.
    means, squares = sums.double() / count[:, None], squares.double() / count[:, None]
    bias = linear.bias.double()
    squares = _over_groups(norm, squares + (2 * means + bias) * bias)
    means = _over_groups(norm, means + bias)
    scale = norm.weight / ((squares - means.square()).clamp(min=0) + norm.eps).sqrt()
    return scale.to(sums.dtype), (norm.bias + scale * (bias - means)).to(sums.dtype)


def _over_groups(norm: nn.GroupNorm, values: Tensor) -> Tensor:
    """(B, O) the mean over its group, for every channel of (B, O)."""
    groups = values.unflatten(-1, (norm.num_groups, -1))
    return groups.mean(-1, keepdim=True).expand_as(groups).flatten(1)
