"""Attention within a cloud that knows the geometry of every pair, and attention between two clouds."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from p2plane.networks.invariants import PAIR_CHANNELS


class Block(nn.Module):
    """A look around in the own cloud, a look at the other one, and a step for each token alone."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.within = GeometricAttention(width, heads)
        self.between = CrossAttention(width, heads)
        self.norm = nn.LayerNorm(width)
        self.step = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, tokens: Tensor, geometry: Tensor, absent: Tensor | None) -> Tensor:
        """(2 B, S, C) tokens of B sources, then of their B targets.

        Args:
            geometry: (2 B, S, 16, S) of `pair_invariants`.
            absent: (2 B, 1, 1, S) zero, and minus infinity where a token is absent.
        """
        tokens = tokens + self.within(tokens, geometry, absent)
        tokens = tokens + self.between(tokens, absent)
        result: Tensor = tokens + self.step(self.norm(tokens))
        return result


class GeometricAttention(nn.Module):
    """Self-attention in which a token asks for geometry as it asks for features, and is told about it.

    The logit of a pair is ``q_i . k_j / sqrt(d) + g_i . r_ij``: the query g is linear in the token, r are the pair's
    invariants. What comes back is the mean of values and of invariants: what was found, and where.

    The first part is GeoTransformer's (Qin et al., CVPR 2022), with invariants of our own that are not embedded for
    each pair; so that the geometry costs as much as a head.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width + heads * PAIR_CHANNELS)
        self.result = nn.Linear(width + heads * PAIR_CHANNELS, width)

    def forward(self, tokens: Tensor, geometry: Tensor, absent: Tensor | None) -> Tensor:
        width = tokens.shape[-1]
        projected = self.project(self.norm(tokens))
        q, k, v = (
            each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in projected[..., : 3 * width].chunk(3, -1)
        )
        asked = projected[..., 3 * width :].unflatten(-1, (self.heads, -1))  # (B, S, H, 16)
        logits = (q * q.shape[-1] ** -0.5) @ k.mT + (asked @ geometry).transpose(1, 2)  # (B, H, S, S)
        if absent is not None:
            logits = logits + absent
        shares = logits.softmax(-1)
        found = (shares @ v).transpose(1, 2).flatten(2)  # (B, S, C)
        where = (shares.transpose(1, 2) @ geometry.mT).flatten(2)  # (B, S, H 16)
        result: Tensor = self.result(torch.cat([found, where], dim=-1))
        return result


class CrossAttention(nn.Module):
    """Every cloud looks at its partner, both ways with the same weights."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.result = nn.Linear(width, width)

    def forward(self, tokens: Tensor, absent: Tensor | None) -> Tensor:
        """(2 B, S, C); the partner of cloud b is cloud b + B."""
        half = len(tokens) // 2
        q, k, v = (
            each.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each in self.project(self.norm(tokens)).chunk(3, dim=-1)
        )
        other = None if absent is None else absent.roll(half, 0)
        found = F.scaled_dot_product_attention(q, k.roll(half, 0), v.roll(half, 0), other)
        result: Tensor = self.result(found.transpose(1, 2).flatten(2))
        return result
