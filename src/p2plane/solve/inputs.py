"""The door: what users hand in becomes `Pairs`, or a ValueError that says what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from p2plane.geometry import se3
from p2plane.solve.basic import project

Array = Tensor | np.ndarray

DIRECTIONS = ("rx", "ry", "rz", "tx", "ty", "tz")


@dataclass(frozen=True)
class Pairs:
    """Matched pairs with one batch dimension; row i of the source belongs to row i of everything else."""

    source: Tensor  # (B, N, 3)
    target: Tensor  # (B, N, 3)
    metric: Tensor | None  # W_i: None for the identity, (B, N, 3) normals for n n^T, (B, N, 3, 3) as it is
    weights: Tensor | None  # (B, N), None for ones
    mask: Tensor | None  # (B, N) bool, true where a pair is present, None for everywhere
    batch_shape: torch.Size  # what B stands for

    @property
    def precision(self) -> torch.dtype:
        """That of the points, and at least float32: half the digits make no pose."""
        return torch.promote_types(torch.promote_types(self.source.dtype, self.target.dtype), torch.float32)

    def part(self, where: slice | tuple[slice, slice]) -> Pairs:
        """Some pairs of the batch, or some points of some pairs."""
        tensors = self.source, self.target, self.metric, self.weights, self.mask
        source, target, metric, weights, mask = (None if tensor is None else tensor[where] for tensor in tensors)
        assert source is not None
        assert target is not None
        return Pairs(source, target, metric, weights, mask, source.shape[:1])


def pairs_from(
    source: Array, target: Array, weights: Array | None, mask: Array | None, **per_point: tuple[Array, int]
) -> tuple[Pairs, dict[str, Tensor]]:
    """Checked pairs without a metric, and the further per-point arrays in the same flat batch.

    Args:
        source: (..., N, 3).
        target: (..., N, 3).
        weights: (..., N) or None.
        mask: (..., N) bool or None.
        per_point: name -> (array, number of trailing dimensions of size 3), for instance normals (..., N, 3) with 1.
    """
    tensors = {"source": _points("source", source, 1), "target": _points("target", target, 1)}
    own = {"source": 2, "target": 2, "weights": 1, "mask": 1}  # dimensions after the batch's
    for name, (array, trailing) in per_point.items():
        tensors[name], own[name] = _points(name, array, trailing), 1 + trailing
    if weights is not None:
        tensors["weights"] = _floating("weights", weights)
    if mask is not None:
        tensors["mask"] = _mask(mask)
    first = tensors["source"]
    count, batch_shape = first.shape[-2], first.shape[:-2]
    for name, tensor in tensors.items():
        if tensor.ndim < own[name]:
            raise ValueError(f"{name} must have shape (..., N), got {tuple(tensor.shape)}")
        leading, rows = tensor.shape[: -own[name]], tensor.shape[-own[name]]
        if rows != count:
            raise ValueError(f"{name} must have one row for each of the {count} source points, got {rows}")
        if tensor.device != first.device:
            raise ValueError(f"{name} must be on the device of source, {first.device}, got {tensor.device}")
        if leading == batch_shape:
            continue
        try:
            batch_shape = torch.broadcast_shapes(batch_shape, leading)
        except RuntimeError:
            raise ValueError(
                f"{name} must have a batch shape that fits that of source, {tuple(first.shape[:-2])}, "
                f"got {tuple(leading)}"
            ) from None
    flat = {name: _flatten(tensor, batch_shape, own[name]) for name, tensor in tensors.items()}
    pairs = Pairs(
        flat.pop("source"), flat.pop("target"), None, flat.pop("weights", None), flat.pop("mask", None), batch_shape
    )
    if pairs.weights is not None and pairs.weights.numel() > 0:
        weights = pairs.weights.detach()
        least = read((weights if pairs.mask is None else weights.masked_fill(~pairs.mask, 0.0)).amin())
        if least is not None and not least >= 0:
            _explain_weights(pairs)
    return pairs, flat


def transform_from(name: str, transform: Array, pairs: Pairs) -> Tensor:
    """(B, 3, 4) float64 from a caller's (..., 4, 4) transform; its gradient stops here, a start has none."""
    tensor = _floating(name, transform)
    if tensor.shape[-2:] != (4, 4):
        raise ValueError(f"{name} must have shape (..., 4, 4), got {tuple(tensor.shape)}")
    try:
        tensor = tensor.detach().expand(*pairs.batch_shape, 4, 4)
    except RuntimeError:
        raise ValueError(
            f"{name} must have a batch shape that fits {tuple(pairs.batch_shape)}, got {tuple(tensor.shape[:-2])}"
        ) from None
    flat = tensor.double().reshape(pairs.batch_shape.numel(), 4, 4).to(pairs.source.device)
    defect = se3.inverse(flat) @ flat - torch.eye(4, dtype=flat.dtype, device=flat.device)
    rigid = (defect.abs() < 1e-2).all(-1).all(-1) & (torch.linalg.det(flat[:, :3, :3]) > 0)
    if holds(rigid.all()) is False:
        raise ValueError(
            f"{name} must hold rigid transforms (a rotation, finite, last row 0 0 0 1), got {flat[~rigid][0].tolist()}"
        )
    return torch.cat([project(flat[:, :3, :3]), flat[:, :3, 3:]], dim=-1)


def free_directions(hold: Sequence[str]) -> tuple[int, ...]:
    """Indices of the tangent directions that may move, from the names of those that are held."""
    if hold == ():
        return tuple(range(6))
    if not isinstance(hold, Sequence):
        raise ValueError(f"hold must be a sequence of names out of {DIRECTIONS}, got {hold!r}")
    names = (hold,) if isinstance(hold, str) else tuple(hold)
    unknown = [name for name in names if name not in DIRECTIONS]
    if unknown:
        raise ValueError(f"hold must name directions out of {DIRECTIONS}, got {unknown[0]!r}")
    if sum(name in names for name in DIRECTIONS[:3]) == 1:
        raise ValueError(
            f"hold must name none, two or all of 'rx', 'ry', 'rz', got {names}: "
            "turning about two axes turns about the third as well"
        )
    return tuple(i for i, name in enumerate(DIRECTIONS) if name not in names)


def one_of(name: str, value: str, choices: Sequence[str]) -> str:
    """The value, if it is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {tuple(choices)}, got {value!r}")
    return value


def holds(condition: Tensor | np.bool_) -> bool | None:
    """Whether a condition holds; None where values cannot be read: while compiling, under vmap, on the meta device."""
    value = read(condition) if isinstance(condition, Tensor) else condition
    return None if value is None else bool(value)


def read(scalar: Tensor) -> float | None:
    """The value of a tensor of one element; None where values cannot be read."""
    if torch.compiler.is_compiling() or scalar.is_meta:
        return None
    try:
        return scalar.item()
    except RuntimeError as error:
        if "vmap" in str(error):
            return None
        raise


def without_autocast(device: torch.device) -> AbstractContextManager:
    """A context in which products of float32 are not rounded to fewer digits."""
    is_on = torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if is_on else nullcontext()


def explain_not_finite(pairs: Pairs) -> None:
    """Raise the ValueError that names the argument whose values spoilt the sums."""
    refuse_not_finite(pairs, source=pairs.source, target=pairs.target)
    if pairs.metric is not None:
        refuse_not_finite(pairs, **{"normals" if pairs.metric.ndim == 3 else "precisions": pairs.metric})
    if pairs.weights is not None:
        _explain_weights(pairs)
    raise ValueError("source and target must have coordinates whose fourth powers fit in float64, got larger ones")


def refuse_not_finite(pairs: Pairs, **tensors: Tensor) -> None:
    """Raise a ValueError that names the first of some per-point tensors (B, N, ...) that is not finite, and where."""
    for name, tensor in tensors.items():
        bad = ~tensor.flatten(2).isfinite().all(-1)
        if pairs.mask is not None:
            bad = bad & pairs.mask
        if holds(bad.any()):
            pair, point = bad.nonzero()[0].tolist()
            raise ValueError(
                f"{name} must be finite where a point is present, got {tensor[pair, point].tolist()} "
                f"at point {point} of pair {pair}; "
                "leave such points out with mask"
            )


def _explain_weights(pairs: Pairs) -> None:
    weights = pairs.weights
    assert weights is not None
    bad = ~(weights.isfinite() & (weights >= 0))
    if pairs.mask is not None:
        bad = bad & pairs.mask
    if bad.any():
        pair, point = bad.nonzero()[0].tolist()
        raise ValueError(
            f"weights must be finite and not negative, got {weights[pair, point].item()} "
            f"at point {point} of pair {pair}"
        )


def _tensor(name: str, array: Array) -> Tensor:
    if isinstance(array, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(array))
    if isinstance(array, Tensor):
        return array
    raise ValueError(f"{name} must be a tensor or a NumPy array, got {type(array).__name__}")


def _floating(name: str, array: Array) -> Tensor:
    tensor = _tensor(name, array)
    if not tensor.is_floating_point():
        raise ValueError(f"{name} must be floating point, got {tensor.dtype}")
    return tensor


def _points(name: str, array: Array, trailing: int) -> Tensor:
    tensor = _floating(name, array)
    if tensor.ndim < 1 + trailing or tensor.shape[-trailing:] != (3,) * trailing:
        expected = "(..., N" + ", 3" * trailing + ")"
        raise ValueError(f"{name} must have shape {expected}, got {tuple(tensor.shape)}")
    return tensor


def _mask(array: Array) -> Tensor:
    tensor = _tensor("mask", array)
    if tensor.dtype != torch.bool:
        raise ValueError(f"mask must be boolean, true where a pair is present, got {tensor.dtype}")
    return tensor


def _flatten(tensor: Tensor, batch_shape: torch.Size, own_dimensions: int) -> Tensor:
    if tensor.shape[:-own_dimensions] == batch_shape and len(batch_shape) == 1:
        return tensor
    own = tensor.shape[-own_dimensions:]
    return tensor.expand(*batch_shape, *own).reshape(batch_shape.numel(), *own)
