"""A pair of clouds with the true motion between them, and a batch of such pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Pair:
    """Two clouds and the motion that brings one onto the other."""

    source: Tensor
    """(N, 3)."""
    target: Tensor
    """(M, 3); its rows have nothing to do with those of the source."""
    source_normals: Tensor
    """(N, 3) of unit length."""
    target_normals: Tensor
    """(M, 3) of unit length."""
    T_target_source: Tensor
    """(4, 4) the true motion."""
    whole: Tensor | None = None
    """(K, 3) the clean and full shape in the target frame, where it was asked for."""


@dataclass(frozen=True)
class PairBatch:
    """Pairs side by side, padded with zeros to the longest; a mask is true where there is a point.

    The solver takes a mask or its value as weights, a network takes the mask.
    """

    source: Tensor  # (B, N, 3)
    target: Tensor  # (B, M, 3)
    source_normals: Tensor  # (B, N, 3)
    target_normals: Tensor  # (B, M, 3)
    source_mask: Tensor  # (B, N) bool
    target_mask: Tensor  # (B, M) bool
    T_target_source: Tensor  # (B, 4, 4)
    whole: Tensor | None = None  # (B, K, 3)
    whole_mask: Tensor | None = None  # (B, K) bool

    def __len__(self) -> int:
        return len(self.source)

    def to(self, *arguments: Any, **options: Any) -> PairBatch:
        """The batch on another device or in another floating dtype, as `torch.Tensor.to`."""
        return PairBatch(*(_moved(tensor, arguments, options) for tensor in self._tensors()))

    def pin_memory(self) -> PairBatch:
        """The batch in page-locked memory, which `torch.utils.data.DataLoader` asks for."""
        tensors: list[Any] = [None if tensor is None else tensor.pin_memory() for tensor in self._tensors()]
        return PairBatch(*tensors)

    def _tensors(self) -> list[Any]:
        return [getattr(self, field.name) for field in fields(self)]


def collate(pairs: Sequence[Pair]) -> PairBatch:
    """One batch of several pairs; what a `DataLoader` takes as `collate_fn`."""
    if not pairs:
        raise ValueError("pairs must hold at least one pair, got none")
    source, source_mask = _padded([pair.source for pair in pairs])
    target, target_mask = _padded([pair.target for pair in pairs])
    whole, whole_mask = None, None
    if all(pair.whole is not None for pair in pairs):
        whole, whole_mask = _padded([pair.whole for pair in pairs if pair.whole is not None])
    return PairBatch(
        source,
        target,
        _padded([pair.source_normals for pair in pairs])[0],
        _padded([pair.target_normals for pair in pairs])[0],
        source_mask,
        target_mask,
        torch.stack([pair.T_target_source for pair in pairs]),
        whole,
        whole_mask,
    )


def _padded(clouds: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """(B, N, 3) clouds with zeros after their last points, and (B, N) where there is a point."""
    counts = torch.tensor([len(cloud) for cloud in clouds])
    padded = torch.nn.utils.rnn.pad_sequence(list(clouds), batch_first=True)
    return padded, torch.arange(padded.shape[1]) < counts[:, None]


def _moved(tensor: Any, arguments: tuple, options: dict) -> Any:
    if tensor is None:
        return None
    if tensor.dtype == torch.bool:  # a mask changes its place, not its dtype
        device = torch.empty(0).to(*arguments, **options).device
        return tensor.to(device)
    return tensor.to(*arguments, **options)
