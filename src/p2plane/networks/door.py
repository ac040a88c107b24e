"""The one door of all networks: clouds in any state come in, checked and complete clouds go on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from p2plane.geometry.normals import estimate_normals
from p2plane.solve.alignment import Alignment
from p2plane.solve.inputs import holds, read


@dataclass(frozen=True)
class Clouds:
    """Two batches of clouds; a mask is true where there is a point, None for everywhere."""

    source: Tensor  # (B, N, 3)
    target: Tensor  # (B, M, 3)
    source_normals: Tensor | None = None  # (B, N, 3)
    target_normals: Tensor | None = None  # (B, M, 3)
    source_mask: Tensor | None = None  # (B, N) bool
    target_mask: Tensor | None = None  # (B, M) bool


class RegistrationNetwork(nn.Module):
    """A network that registers clouds; its papers' details are in the subclasses.

    A subclass says what normals it needs, and does its work in `register`.
    """

    fewest_points = 1
    """A cloud must have so many points."""

    def needs_normals(self) -> tuple[bool, bool]:
        """Whether the normals of the source and of the target are looked at."""
        return False, False

    def register(self, clouds: Clouds, generator: torch.Generator | None) -> Alignment:
        """The alignment of complete clouds."""
        raise NotImplementedError

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        source_normals: Tensor | None = None,
        target_normals: Tensor | None = None,
        *,
        source_mask: Tensor | None = None,
        target_mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Alignment:
        """The motion of the source onto the target.

        Args:
            source: (B, N, 3), in any precision; what follows has that of the network.
            target: (B, M, 3).
            source_normals: (B, N, 3) of unit length; estimated where they are needed and missing.
            target_normals: (B, M, 3) likewise.
            source_mask: (B, N) bool, true where a point is present; what stands elsewhere does not matter.
            target_mask: (B, M) bool.
            generator: of whatever is drawn at random.

        Returns:
            An `Alignment` with the rounds of the network.
        """
        clouds = Clouds(source, target, source_normals, target_normals, source_mask, target_mask)
        _check(clouds, self.fewest_points)
        clouds, estimated = _completed(_without_absent(_without_full_masks(clouds)), self.needs_normals())
        alignment = self.register(_in_precision_of(self, clouds), generator)
        return replace(alignment, normals_estimated=estimated)


def _check(clouds: Clouds, fewest: int) -> None:
    for side in ("source", "target"):
        points, normals, mask = (getattr(clouds, name) for name in (side, f"{side}_normals", f"{side}_mask"))
        if points.ndim != 3 or points.shape[-1] != 3 or not points.is_floating_point():
            raise ValueError(f"{side} must be floating point of shape (B, N, 3), got {_described(points)}")
        if len(points) != len(clouds.source):
            raise ValueError(f"{side} must have the batch size of source, {len(clouds.source)}, got {len(points)}")
        if normals is not None and (normals.shape != points.shape or not normals.is_floating_point()):
            raise ValueError(f"{side}_normals must have the shape {tuple(points.shape)}, got {_described(normals)}")
        if mask is not None and (mask.shape != points.shape[:2] or mask.dtype != torch.bool):
            raise ValueError(f"{side}_mask must be bool of shape {tuple(points.shape[:2])}, got {_described(mask)}")
        count = points.shape[1] if mask is None or not len(points) else read(mask.sum(-1).min())
        if count is not None and count < fewest:
            raise ValueError(f"{side} must have at least {fewest} points in every cloud, got {int(count)}")


def _without_full_masks(clouds: Clouds) -> Clouds:
    """None for a mask that hides nothing: what follows is faster then."""
    full: dict[str, Any] = {
        name: None for name in ("source_mask", "target_mask") if _hides_nothing(getattr(clouds, name))
    }
    return replace(clouds, **full) if full else clouds


def _hides_nothing(mask: Tensor | None) -> bool:
    return mask is not None and holds(mask.all()) is True


def _without_absent(clouds: Clouds) -> Clouds:
    """Zeros where a point is absent: NaN there must reach nothing."""
    changed: dict[str, Any] = {}
    for side in ("source", "target"):
        mask = getattr(clouds, f"{side}_mask")
        for name in (side, f"{side}_normals"):
            values = getattr(clouds, name)
            if mask is not None and values is not None:
                changed[name] = values.masked_fill(~mask[..., None], 0.0)
            values = changed.get(name, values)
            if values is not None and holds(values.isfinite().all()) is False:
                raise ValueError(f"{name} must be finite where a point is present")
    return replace(clouds, **changed)


def _completed(clouds: Clouds, needed: tuple[bool, bool]) -> tuple[Clouds, bool]:
    missing: dict[str, Any] = {}
    for side, is_needed in zip(("source", "target"), needed, strict=True):
        if is_needed and getattr(clouds, f"{side}_normals") is None:
            points, mask = getattr(clouds, side), getattr(clouds, f"{side}_mask")
            missing[f"{side}_normals"] = estimate_normals(points, mask=mask).normals
    return replace(clouds, **missing), bool(missing)


def _in_precision_of(network: nn.Module, clouds: Clouds) -> Clouds:
    """The clouds in the precision that the network's parameters have."""
    dtype = next((parameter.dtype for parameter in network.parameters()), clouds.source.dtype)
    tensors = {name: getattr(clouds, name) for name in ("source", "target", "source_normals", "target_normals")}
    return replace(clouds, **{name: value.to(dtype) for name, value in tensors.items() if value is not None})


def _described(tensor: Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)}"
