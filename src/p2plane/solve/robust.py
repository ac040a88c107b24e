"""Robust kernels: how much a squared distance costs, and the weight it leaves a pair in a reweighted solve.

A kernel rho takes squared distances, in squared units of its scale, and equals them near zero. All are concave in the
square, so that minimising ``sum_i w_i rho'(s_i) s_i`` again and again never raises ``sum_i w_i rho(s_i)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Kernel:
    """A robust kernel with a scale: the distance at which a pair starts to count for less.

    Args:
        scale: in the units of the distance, positive.
    """

    scale: float

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise ValueError(f"scale must be positive and finite, got {self.scale}")

    def cost(self, squared: Tensor, present: Tensor) -> Tensor:
        """(B, N) rho of squared distances (B, N); `present` (B, N) tells which pairs there are. Gradient: squared."""
        return self.scale**2 * self._unit_cost(squared / self.scale**2)

    def weight(self, squared: Tensor, present: Tensor, width: Tensor | None = None) -> Tensor:
        """(B, N) rho', between 0 and 1; with a scale of at least the width (B, 1), if there is one."""
        scale = self.scale if width is None else width.clamp_min(self.scale)
        return self._unit_weight(squared / scale**2)

    def _unit_cost(self, s: Tensor) -> Tensor:
        raise NotImplementedError

    def _unit_weight(self, s: Tensor) -> Tensor:
        raise NotImplementedError


class Huber(Kernel):
    """Squares within the scale, then straight lines: outliers pull, but no harder for being far."""

    def _unit_cost(self, s: Tensor) -> Tensor:
        return torch.where(s <= 1, s, 2 * s.clamp_min(1).sqrt() - 1)

    def _unit_weight(self, s: Tensor) -> Tensor:
        return s.clamp_min(1).rsqrt()


class Cauchy(Kernel):
    """``log(1 + s)``: outliers pull less the farther they are, and always a little."""

    def _unit_cost(self, s: Tensor) -> Tensor:
        return torch.log1p(s)

    def _unit_weight(self, s: Tensor) -> Tensor:
        return 1 / (1 + s)


class GemanMcClure(Kernel):
    """``s / (1 + s)``: outliers cost at most one."""

    def _unit_cost(self, s: Tensor) -> Tensor:
        return s / (1 + s)

    def _unit_weight(self, s: Tensor) -> Tensor:
        return (1 + s).square().reciprocal()


class Tukey(Kernel):
    """``(1 - (1 - s)^3) / 3`` up to the scale, constant beyond: outliers count for nothing."""

    def _unit_cost(self, s: Tensor) -> Tensor:
        return (1 - (1 - s).clamp_min(0) ** 3) / 3

    def _unit_weight(self, s: Tensor) -> Tensor:
        return (1 - s).clamp_min(0).square()


@dataclass(frozen=True)
class Trimmed:
    """Only the nearest fraction of the pairs counts (least trimmed squares).

    Args:
        fraction: of the present pairs that is kept, in (0, 1].
    """

    fraction: float

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise ValueError(f"fraction must be in (0, 1], got {self.fraction}")

    def cost(self, squared: Tensor, present: Tensor) -> Tensor:
        """(B, N) the square of a kept pair, zero for others. Gradient: squared, at a fixed choice of pairs."""
        return squared * self.weight(squared, present)

    def weight(self, squared: Tensor, present: Tensor, width: Tensor | None = None) -> Tensor:
        """(B, N) one for kept pairs, zero for others."""
        # gradient stops here: which pairs are kept is a choice
        ranked = squared.detach().masked_fill(~present, torch.inf)
        kept = (self.fraction * present.sum(-1, keepdim=True).double() - 1e-9).ceil().long()  # 7 / 13 of 13 are 7
        if squared.shape[-1] == 0:
            return torch.zeros_like(squared)
        limit = ranked.sort(dim=-1).values.gather(-1, (kept - 1).clamp_min(0))
        return (present & (ranked <= limit)).to(squared.dtype)


RobustKernel = Kernel | Trimmed
