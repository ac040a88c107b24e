"""Hard matches that can be trained: one target point for each source point, with the gradient of a soft one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from p2plane.matching.softmax import softmax


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
    """`hard_match` that is never written out: ``Picks(logits) @ values`` is ``hard_match(logits) @ values``.

    Neither the match, nor its softmax, nor the noise is kept for backward: they are made again, some clouds at a time.

    Gradient: logits, and the values.
    """

    logits: Tensor
    """(B, N, M); minus infinity where a target point is absent."""
    sample: bool = False
    generator: torch.Generator | None = None

    def __matmul__(self, values: Tensor) -> Tensor:
        """(B, N, C) of values (B, M, C), one row of them for each row of logits."""
        if self.sample or (torch.is_grad_enabled() and (self.logits.requires_grad or values.requires_grad)):
            picked: Tensor = _Picked.apply(self.logits, values, self.sample, self.generator)
            return picked
        return _rows(values, self.logits.argmax(dim=-1))


class _Picked(torch.autograd.Function):
    """Rows of values where rows of logits, disturbed if asked, have their largest entries."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, logits: Tensor, values: Tensor, sample: bool, generator: torch.Generator | None
    ) -> Tensor:
        noise = _Noise(logits, generator) if sample else None
        indices = torch.cat([_disturbed(logits[some], noise).argmax(dim=-1) for some in _blocks(logits)])
        ctx.save_for_backward(logits, values, indices)
        ctx.noise = noise
        return _rows(values, indices)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        logits, values, indices = ctx.saved_tensors
        by_logits = by_values = None
        if ctx.needs_input_grad[0]:
            noise = None if ctx.noise is None else ctx.noise.again()
            by_logits = torch.empty_like(logits)
            for some in _blocks(logits):
                soft = softmax(_disturbed(logits[some], noise))
                rates = torch.bmm(gradient[some], values[some].mT)
                rates -= torch.linalg.vecdot(soft, rates)[..., None]
                torch.mul(soft, rates, out=by_logits[some])
        if ctx.needs_input_grad[1]:
            by_values = torch.zeros_like(values).scatter_add_(1, indices[..., None].expand_as(gradient), gradient)
        return by_logits, by_values, None, None


class _Noise:
    """Gumbel noise that can be drawn a second time."""

    def __init__(self, like: Tensor, generator: torch.Generator | None) -> None:
        if generator is None:  # a seed from torch's own random numbers, which are those of a run
            seed = int(torch.randint(2**62, ()))
            generator = torch.Generator(like.device).manual_seed(seed)
        self.generator, self.state = generator, generator.get_state()

    def again(self) -> _Noise:
        """The same noise from its beginning."""
        generator = torch.Generator(self.generator.device)
        generator.set_state(self.state)
        return _Noise(torch.empty(0), generator)


def _disturbed(logits: Tensor, noise: _Noise | None) -> Tensor:
    if noise is None:
        return logits
    return gumbel_noise(logits.shape, like=logits, generator=noise.generator).add_(logits)


def _blocks(logits: Tensor) -> Iterator[slice]:
    """Slices of clouds, so that a block fits into the cache of a CPU, and keeps a GPU busy."""
    room = 2**20 if logits.device.type == "cpu" else 2**26
    step = max(1, room // max(1, logits[:1].numel()))
    return (slice(start, start + step) for start in range(0, len(logits), step))


def _rows(values: Tensor, indices: Tensor) -> Tensor:
    """(B, N, C) rows of values (B, M, C) at indices (B, N)."""
    return values.gather(1, indices[..., None].expand(*indices.shape, values.shape[-1]))
