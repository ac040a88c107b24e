"""The transformer of DCP and PRNet: each cloud's features, seen in the light of the other cloud.

One encoder block and one decoder block, normalised before each step, without dropout and without positions. What a
cloud contributes is separate from the comparison (`look` and `compare`): a cloud that stays the same is looked at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class Look(NamedTuple):
    """All that a cloud contributes to its comparison with any other."""

    features: Tensor  # (B, N, C) after the decoder's attention to the cloud itself
    keys: Tensor  # (B, H, N, C / H) of what the encoder makes of the cloud
    values: Tensor  # (B, H, N, C / H)
    mask: Tensor | None  # (B, N) bool, true where a point is present


class Transformer(nn.Module):
    """Encoder and decoder.

    Args:
        width: number of features.
        heads: of the attention.
        hidden: width inside the feed-forward steps.
        slope: of their ReLU on its left side.
    """

    def __init__(self, width: int = 512, heads: int = 4, hidden: int = 1024, slope: float = 0.0) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"heads must divide the number of features, {width}, got {heads}")
        self.model = _Model(width, heads, hidden, slope)  # this and all names below are the published ones

    def look(self, features: Tensor, mask: Tensor | None = None) -> Look:
        """What features (B, N, C) contribute; absent points are attended by nobody. Gradient: features."""
        encoder, decoder = self.model.encoder, self.model.decoder
        standard = _standardized(features)
        encoded = encoder.block.fed_forward(encoder.block.attended(features, standard, mask))
        memory = _standardized(encoded)
        keys, values = (decoder.block.src_attn.project(i, memory, encoder.norm) for i in (1, 2))
        return Look(decoder.block.attended(features, standard, mask), keys, values, mask)

    def compare(self, cloud: Look, other: Look) -> Tensor:
        """(B, N, C) features of a cloud in the light of the other. Gradient: all features."""
        decoder, block = self.model.decoder, self.model.decoder.block
        queries = block.src_attn.project(0, _standardized(cloud.features), block.norm(1))
        features = block.src_attn(queries, other.keys, other.values, other.mask) + cloud.features
        return decoder.norm(block.fed_forward(features))


class _Model(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int, slope: float) -> None:
        super().__init__()
        self.encoder = _Stack(_Block(width, heads, hidden, slope, steps=2), width)
        self.decoder = _Stack(_DecoderBlock(width, heads, hidden, slope, steps=3), width)


class _Stack(nn.Module):
    """A single block, and the norm that closes it."""

    def __init__(self, block: _Block, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([block])
        self.norm = _Norm(width)

    @property
    def block(self) -> Any:
        return self.layers[0]


class _Block(nn.Module):
    """Steps that each add to the features what they make of their norm."""

    def __init__(self, width: int, heads: int, hidden: int, slope: float, steps: int) -> None:
        super().__init__()
        self.self_attn = _Attention(width, heads)
        self.feed_forward = _FeedForward(width, hidden, slope)
        self.sublayer = nn.ModuleList(nn.ModuleDict({"norm": _Norm(width)}) for _ in range(steps))

    def norm(self, step: int) -> Any:
        return self.sublayer[step]["norm"]  # type: ignore[index]

    def attended(self, features: Tensor, standard: Tensor, mask: Tensor | None) -> Tensor:
        projected = (self.self_attn.project(i, standard, self.norm(0)) for i in range(3))
        return self.self_attn(*projected, mask) + features

    def fed_forward(self, features: Tensor) -> Tensor:
        return self.feed_forward(_standardized(features), self.norm(-1)) + features


class _DecoderBlock(_Block):
    def __init__(self, width: int, heads: int, hidden: int, slope: float, steps: int) -> None:
        super().__init__(width, heads, hidden, slope, steps)
        self.src_attn = _Attention(width, heads)


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.linears = nn.ModuleList(nn.Linear(width, width) for _ in range(4))  # queries, keys, values, result

    def project(self, which: int, standard: Tensor, norm: _Norm) -> Tensor:
        """(B, H, N, C / H) queries, keys or values of standardized features (B, N, C)."""
        return norm.then(self.linears[which], standard).unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """(B, N, C) from the values of those that the mask (B, M) calls present."""
        present = None if mask is None else mask[:, None, None]
        heads = F.scaled_dot_product_attention(queries, keys, values, present)
        result: Tensor = self.linears[3](heads.transpose(1, 2).flatten(2))
        return result


class _FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int, slope: float) -> None:
        super().__init__()
        self.slope = slope
        self.w_1, self.w_2 = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, standard: Tensor, norm: _Norm) -> Tensor:
        # As a matrix: the result of a map of three dimensions is a view, and to change a view in its place is dear.
        hidden = norm.then(self.w_1, standard.flatten(0, 1))
        result: Tensor = self.w_2(F.relu_(hidden) if self.slope == 0 else F.leaky_relu_(hidden, self.slope))
        return result.view_as(standard)


class _Norm(nn.Module):
    """``gain (x - mean) / (std + 1e-6) + bias`` over the features, std the unbiased one; not `nn.LayerNorm`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.a_2, self.b_2 = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, features: Tensor) -> Tensor:
        return torch.addcmul(self.b_2, _standardized(features), self.a_2)

    def then(self, linear: Any, standard: Tensor) -> Tensor:
        """The norm and a linear map after it in one, of features that are standardized already."""
        return F.linear(standard, linear.weight * self.a_2, linear.bias + linear.weight @ self.b_2)


def _standardized(features: Tensor) -> Tensor:
    result: Tensor = _Standardized.apply(features)
    return result


class _Standardized(torch.autograd.Function):
    """``(x - mean) / (std + 1e-6)``; only the result is kept for backward."""

    @staticmethod
    def forward(ctx: Any, features: Tensor) -> Tensor:  # type: ignore[override]
        centered = features - features.mean(-1, keepdim=True)
        deviation = torch.linalg.vector_norm(centered, dim=-1, keepdim=True) / (features.shape[-1] - 1) ** 0.5
        inverse = (deviation + 1e-6).reciprocal()
        result = centered.mul_(inverse)
        ctx.save_for_backward(result, inverse, deviation)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        result, inverse, deviation = ctx.saved_tensors
        # dstd/dx = (x - mean) / ((C - 1) std), taken as zero where all features are equal.
        along = (gradient * result).sum(-1, keepdim=True) / ((result.shape[-1] - 1) * deviation)
        along = along.masked_fill_(deviation == 0, 0.0)
        across = (gradient - gradient.mean(-1, keepdim=True)).mul_(inverse)
        return across.addcmul_(result, along, value=-1)
