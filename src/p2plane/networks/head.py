"""The last step of every matching network: matched pairs in, pose out, by points or by planes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from p2plane.matching.hard import Picks
from p2plane.matching.pointers import leading_eigenvector, soft_points, soft_points_and_normal_tensors
from p2plane.solve.alignment import Alignment
from p2plane.solve.distances import point_to_distribution, point_to_plane, point_to_point
from p2plane.solve.inputs import one_of


@dataclass(frozen=True)
class HeadConfig:
    """How a pose is made of matched pairs. It has no weights: a network trained with one head runs with another."""

    head: str = "point"
    """"point" as published, or "plane", the paper's."""
    normals: str = "tensor"
    """What stands for a matched normal: the averaged "tensor" as W_i, or its leading "eigenvector", as in the paper."""
    point_share: float = 0.0
    """How much of the identity is added to W_i: a little point-to-point steadies planes whose normals are noisy."""
    gradient: str = "exact"
    """"exact", "penalty" (the paper's), or "unrolled" (with eigenvectors only)."""

    def __post_init__(self) -> None:
        one_of("head", self.head, ("point", "plane"))
        one_of("normals", self.normals, ("tensor", "eigenvector"))
        one_of("gradient", self.gradient, ("exact", "penalty", "unrolled"))
        if not 0 <= self.point_share < float("inf"):
            raise ValueError(f"point_share must not be negative, got {self.point_share}")
        if self.gradient == "unrolled" and (self.normals != "eigenvector" or self.point_share > 0):
            raise ValueError(
                "gradient='unrolled' must go with normals='eigenvector' and point_share=0, "
                f"got {self.normals!r} and {self.point_share}"
            )

    @property
    def needs_normals(self) -> bool:
        """Whether the head looks at the normals of the target."""
        return self.head == "plane"


def pose_from_match(
    config: HeadConfig,
    match: Tensor | Picks,
    source: Tensor,
    target: Tensor,
    target_normals: Tensor | None,
    weights: Tensor | None = None,
    mask: Tensor | None = None,
    initial: Tensor | None = None,
) -> tuple[Alignment, Tensor]:
    """The pose that brings the source onto what a match points to, and those points (B, N, 3).

    Args:
        match: (B, N, M), rows that sum to one; or the `Picks` of one target point for each row.
        source: (B, N, 3).
        target: (B, M, 3).
        target_normals: (B, M, 3) for planes.
        weights: (B, N).
        mask: (B, N) bool, true where a source point is present.
        initial: (B, 4, 4) where directions stay that the pairs do not determine, and where the paper's steps start;
            None for the identity.

    Gradient: match, source, target, target_normals, weights.
    """
    if config.head == "point":
        matched = soft_points(match, target)
        return point_to_point(source, matched, weights, mask, initial=initial), matched
    assert target_normals is not None
    matched, tensors = soft_points_and_normal_tensors(match, target, target_normals)
    options: dict[str, Any] = {"gradient": config.gradient, "initial": initial}
    if config.gradient != "exact":
        options["solver"] = "accumulate"  # both belong to the paper's iteration
    if config.normals == "eigenvector":
        normals = leading_eigenvector(tensors)
        if config.point_share == 0:
            return point_to_plane(source, matched, normals, weights, mask, **options), matched
        tensors = normals[..., :, None] * normals[..., None, :]
    if config.point_share > 0:
        tensors = tensors + config.point_share * torch.eye(3, dtype=tensors.dtype, device=tensors.device)
    return point_to_distribution(source, matched, tensors, weights, mask, **options), matched
