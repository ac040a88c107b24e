"""The door of `icp`: two clouds, or two batches of them, checked and made one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from p2plane.classical.scales import Surface, surface_of
from p2plane.geometry.neighbors import are_moderate, refuse_too_large
from p2plane.geometry.normals import estimate_normals
from p2plane.solve.inputs import Array


@dataclass(frozen=True)
class CloudPairs:
    """Pairs of clouds, one after the other."""

    pairs: list[tuple[Surface, Surface]]  # source and target, without absent points
    batch_shape: torch.Size
    like: Tensor  # of the dtype and on the device of the clouds


def read_clouds(
    source: Array,
    target: Array,
    source_normals: Array | None,
    target_normals: Array | None,
    source_mask: Array | None,
    target_mask: Array | None,
    differentiable: bool,
) -> CloudPairs:
    """The clouds that users hand in, (..., N, 3) and (..., M, 3) with normals and masks, or a ValueError.

    Gradient: all floating-point arguments if `differentiable`, else none.
    """
    sides = [
        _Side("source", source, source_normals, source_mask),
        _Side("target", target, target_normals, target_mask),
    ]
    first, second = sides
    if first.points.device != second.points.device:
        raise ValueError(f"target must be on the device of source, {first.points.device}, got {second.points.device}")
    batch_shape = _batch_shape(first.points.shape[:-2], second.points.shape[:-2])
    dtype = torch.promote_types(torch.promote_types(first.points.dtype, second.points.dtype), torch.float32)
    sources, targets = (side.surfaces(batch_shape, dtype, differentiable) for side in sides)
    return CloudPairs(list(zip(sources, targets, strict=True)), batch_shape, first.points.new_empty(0, dtype=dtype))


def _batch_shape(first: torch.Size, second: torch.Size) -> torch.Size:
    if first == second:
        return first
    try:
        return torch.broadcast_shapes(first, second)
    except RuntimeError:
        raise ValueError(
            f"target must have a batch shape that fits that of source, {tuple(first)}, got {tuple(second)}"
        ) from None


def with_normals(surface: Surface, needed: bool) -> tuple[Surface, bool]:
    """The surface with normals if they are needed, and whether they had to be estimated."""
    if not needed or surface.normals is not None:
        return surface, False
    return Surface(surface.points, surface.rows, estimate_normals(surface.points).normals), True


class _Side:
    """One of the two batches, as tensors."""

    def __init__(self, name: str, points: Array, normals: Array | None, mask: Array | None) -> None:
        self.name = name
        self.points = _tensor(name, points)
        if not self.points.is_floating_point() or self.points.ndim < 2 or self.points.shape[-1] != 3:
            raise ValueError(f"{name} must be floating point of shape (..., N, 3), got {_described(self.points)}")
        self.normals = None if normals is None else _tensor(f"{name}_normals", normals)
        if self.normals is not None and (
            self.normals.shape != self.points.shape or not self.normals.is_floating_point()
        ):
            raise ValueError(
                f"{name}_normals must have the shape of {name}, {tuple(self.points.shape)}, "
                f"got {_described(self.normals)}"
            )
        self.mask = None if mask is None else _tensor(f"{name}_mask", mask)
        if self.mask is not None and (self.mask.shape != self.points.shape[:-1] or self.mask.dtype != torch.bool):
            raise ValueError(
                f"{name}_mask must be bool of shape {tuple(self.points.shape[:-1])}, got {_described(self.mask)}"
            )

    def surfaces(self, batch_shape: torch.Size, dtype: torch.dtype, differentiable: bool) -> list[Surface]:
        """One surface for each pair of the batch, of finite points."""
        rows, batch = self.points.shape[-2], batch_shape.numel()

        def flat(tensor: Tensor | None, dtype: torch.dtype, *own: int) -> Sequence[Tensor | None]:
            if tensor is None:
                return [None] * batch
            tensor = tensor.to(dtype) if differentiable else tensor.detach().to(dtype)
            return tensor.expand(*batch_shape, *own).reshape(batch, *own).unbind()

        surfaces = []
        parts = flat(self.points, dtype, rows, 3), flat(self.normals, dtype, rows, 3), flat(self.mask, torch.bool, rows)
        for pair, (points, normals, mask) in enumerate(zip(*parts, strict=True)):
            assert points is not None
            surfaces.append(surface_of(points, normals, mask))
            self._refuse_immoderate(pair, surfaces[-1])
        return surfaces

    def _refuse_immoderate(self, pair: int, surface: Surface) -> None:
        for name, values in ((self.name, surface.points), (f"{self.name}_normals", surface.normals)):
            if values is None or are_moderate(values):
                continue
            if not values.isfinite().all():
                row = int((~values.isfinite()).any(-1).nonzero()[0])
                raise ValueError(
                    f"{name} must be finite where a point is present, got {values[row].tolist()} "
                    f"at point {int(surface.rows[row])} of pair {pair}; leave such points out with {self.name}_mask"
                )
            refuse_too_large(name, values)


def _tensor(name: str, array: Array) -> Tensor:
    if isinstance(array, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(array))
    if isinstance(array, Tensor):
        return array
    raise ValueError(f"{name} must be a tensor or a NumPy array, got {type(array).__name__}")


def _described(tensor: Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)}"
