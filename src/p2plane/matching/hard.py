"""Hard matches that can be trained: one target point for each source point, with the gradient of a soft one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from p2plane.matching.softmax import SMALLEST_SHARE, softmax


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
    match: Tensor = _OneHot.apply(softmax(logits))
    return match


class _OneHot(torch.autograd.Function):
    """Ones where rows have their largest entries, zeros elsewhere; the gradient passes straight through."""

    @staticmethod
    def forward(ctx: Any, soft: Tensor) -> Tensor:  # type: ignore[override]
        return torch.zeros_like(soft).scatter_(-1, soft.argmax(dim=-1, keepdim=True), 1.0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient


@dataclass(frozen=True)
class Picks:
    """A hard match that is never written out: ``Picks(match) @ values`` is ``hard_match(match.log()) @ values``.

    With `sample`, row i picks j with probability ``match_ij / sum_j match_ij``, by one random number for a row; Gumbel
    noise is drawn only for the gradient, as it is distributed where it has led to that pick. So picks and gradients are
    distributed as those of `hard_match`, for less than half of the noise.

    Neither the hard match, nor its softmax, nor the noise is kept for backward: they are made again, some clouds at a
    time. Rows of the match need not sum to one. One that sums to less than `SMALLEST_SHARE` has no gradient.

    Gradient: match, and the values.
    """

    match: Tensor
    """(B, N, M) not negative; zero where a target point is absent."""
    sample: bool = False
    generator: torch.Generator | None = None

    def __matmul__(self, values: Tensor) -> Tensor:
        """(B, N, C) of values (B, M, C), one row of them for each row of the match."""
        indices = _draw(self.match.detach(), self.generator) if self.sample else self.match.argmax(dim=-1)
        if not torch.is_grad_enabled() or not (self.match.requires_grad or values.requires_grad):
            return _rows(values, indices)
        picked: Tensor = _Picked.apply(self.match, values, indices, _seed(self.generator) if self.sample else None)
        return picked


def _draw(match: Tensor, generator: torch.Generator | None) -> Tensor:
    """(B, N) random columns of a match (B, N, M), each by its share of its row: where the running sum passes a number.

    A column without a share is never drawn, but where a row has no others.
    """
    below_one = 1 - torch.finfo(match.dtype).eps
    indices = torch.empty(match.shape[:2], dtype=torch.int64, device=match.device)
    for some in _blocks(match):
        running = match[some].cumsum(dim=-1)
        total = running[..., -1:]
        uniform = torch.rand(total.shape, dtype=match.dtype, device=match.device, generator=generator)
        indices[some] = torch.searchsorted(running, uniform.mul_(below_one).mul_(total), right=True)[..., 0]
    return indices.clamp_max_(match.shape[-1] - 1)


class _Picked(torch.autograd.Function):
    """Rows of values at the indices, with the gradient of a soft match: with noise if there is a seed."""

    @staticmethod
    def forward(ctx: Any, match: Tensor, values: Tensor, indices: Tensor, seed: int | None) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(match, values, indices)
        ctx.seed = seed
        return _rows(values, indices)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        match, values, indices = ctx.saved_tensors
        by_match = by_values = None
        if ctx.needs_input_grad[0]:
            generator = None if ctx.seed is None else torch.Generator(match.device).manual_seed(ctx.seed)
            by_match = torch.empty_like(match)
            for some in _blocks(match):
                # With q the factors of the noise, the soft match is q m / sum(q m).
                factors = None if generator is None else _factors(match[some], indices[some], generator)
                disturbed = match[some] if factors is None else match[some] * factors
                total = disturbed.sum(-1, keepdim=True)
                inverse = total.reciprocal().masked_fill_(total < SMALLEST_SHARE, 0.0)
                rates = torch.bmm(gradient[some], values[some[0]].mT, out=by_match[some])
                rates -= torch.linalg.vecdot(disturbed, rates)[..., None] * inverse
                rates *= inverse if factors is None else factors.mul_(inverse)
        if ctx.needs_input_grad[1]:
            by_values = torch.zeros_like(values).scatter_add_(1, indices[..., None].expand_as(gradient), gradient)
        return by_match, by_values, None, None


def _factors(match: Tensor, indices: Tensor, generator: torch.Generator) -> Tensor:
    """(B, N, M) exponentials of the Gumbel noise that has made each row pick its index (B, N).

    The one with the largest ``m_j / e_j``, for standard exponential e_j, is picked. The smallest of the ``e_j / m_j``
    is exponential with the rate sum_j m_j, whichever it is; as exponential numbers have no memory, what the others
    exceed it by is again exponential, with the rate m_j each.
    """
    noise = _exponential(match.shape, match, generator).scatter_(-1, indices[..., None], 0.0)
    total = match.sum(-1, keepdim=True)
    first = _exponential(total.shape, match, generator).div_(total).masked_fill_(total < SMALLEST_SHARE, 1.0)
    return noise.addcmul_(first, match).clamp_min_(torch.finfo(match.dtype).tiny).reciprocal_()


def _exponential(shape: torch.Size, like: Tensor, generator: torch.Generator) -> Tensor:
    """Standard exponential numbers, never zero; of 16 random bits each, which on a CPU halves the time of a draw."""
    count = shape.numel()
    bits = torch.empty(count // 4 + 1, dtype=torch.int64, device=like.device)
    bits.random_(-(2**63), None, generator=generator)
    uniform = bits.view(torch.int16)[:count].view(shape).to(like.dtype)
    return uniform.add_(2**15 + 0.5).mul_(2**-16).log_().neg_()


def _seed(generator: torch.Generator | None) -> int:
    """Of noise that is drawn in backward, whenever that is."""
    device = "cpu" if generator is None else generator.device
    return int(torch.randint(2**62, (), generator=generator, device=device))


def _blocks(match: Tensor) -> Iterator[tuple[slice, slice]]:
    """The clouds and the rows of each block: on a CPU few rows, that fit its cache; on a GPU many, to keep it busy."""
    batch, rows, columns = match.shape
    if match.device.type == "cpu":
        clouds, length = 1, max(1, 2**17 // max(1, columns))
    else:
        clouds, length = max(1, 2**26 // max(1, rows * columns)), max(1, rows)
    for cloud in range(0, batch, clouds):
        for row in range(0, rows, length):
            yield slice(cloud, cloud + clouds), slice(row, row + length)


def _rows(values: Tensor, indices: Tensor) -> Tensor:
    """(B, N, C) rows of values (B, M, C) at indices (B, N)."""
    return values.gather(1, indices[..., None].expand(*indices.shape, values.shape[-1]))
