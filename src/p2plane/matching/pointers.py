"""Soft pointers: for each source point the mean of the target points, and of their normals, under a match.

Normals may be flipped, and means of flipped normals vanish. So what is averaged is the tensor ``n n^T``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from p2plane.matching.hard import Picks
from p2plane.solve.basic import is_basic, leading_direction

_ROWS, _COLUMNS = (0, 0, 0, 1, 1, 2), (0, 1, 2, 1, 2, 2)  # the six entries of a symmetric matrix
_ENTRIES = (0, 1, 2, 1, 3, 4, 2, 4, 5)  # where the nine stand among the six


def soft_points(match: Tensor | Picks, target: Tensor) -> Tensor:
    """(B, N, 3) means of the target (B, M, 3) under a match (B, N, M) whose rows sum to one.

    Gradient: both arguments.
    """
    return match @ target


def soft_normal_tensors(match: Tensor | Picks, target_normals: Tensor) -> Tensor:
    """(B, N, 3, 3) means of ``n n^T`` of the target normals (B, M, 3) under a match (B, N, M).

    Gradient: both arguments.
    """
    return _full(match @ _entries(target_normals))


def soft_points_and_normal_tensors(
    match: Tensor | Picks, target: Tensor, target_normals: Tensor
) -> tuple[Tensor, Tensor]:
    """`soft_points` and `soft_normal_tensors` in one product, which goes through the match once, and once back."""
    means = match @ torch.cat([target, _entries(target_normals)], dim=-1)  # (B, N, 9)
    return means[..., :3], _full(means[..., 3:])


def _entries(normals: Tensor) -> Tensor:
    """(..., 6) the entries of ``n n^T`` that differ."""
    return normals[..., _ROWS] * normals[..., _COLUMNS]


def _full(entries: Tensor) -> Tensor:
    """(..., 3, 3) symmetric matrices of their six entries."""
    return entries[..., _ENTRIES].unflatten(-1, (3, 3))


def leading_eigenvector(tensors: Tensor, smallest_gap: float = 1e-3) -> Tensor:
    """(..., 3) unit eigenvectors of the largest eigenvalue of symmetric matrices (..., 3, 3); the sign is arbitrary.

    ``dn = sum_k v_k (v_k^T dS n) / (l_max - l_k)`` over the two others. torch's own derivative divides by all gaps, so
    that it is NaN for ``n n^T`` itself, whose other two eigenvalues are equal.

    Args:
        smallest_gap: a gap that is smaller, relative to the trace, counts as this one: the gradient stays bounded where
            the two largest eigenvalues meet and the eigenvector has none.

    Gradient: tensors.
    """
    vectors: Tensor = _LeadingEigenvector.apply(tensors, smallest_gap)
    return vectors


class _LeadingEigenvector(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensors: Tensor, smallest_gap: float) -> Tensor:  # type: ignore[no-untyped-def, override]
        wide = tensors.detach().float() if tensors.dtype in (torch.float16, torch.bfloat16) else tensors.detach()
        if is_basic():
            return leading_direction((wide + wide.mT).double()).to(tensors.dtype)
        values, vectors = torch.linalg.eigh((wide + wide.mT) / 2)
        leading = vectors[..., 2]
        gaps = values[..., 2:] - values[..., :2]
        gaps = gaps.clamp_min(smallest_gap * values.sum(-1, keepdim=True).abs() + torch.finfo(values.dtype).tiny)
        ctx.save_for_backward(vectors, gaps)
        return leading.to(tensors.dtype)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def, override]
        vectors, gaps = ctx.saved_tensors
        others, leading = vectors[..., :2], vectors[..., 2]
        share = (others.mT @ gradient.to(vectors.dtype)[..., None]).squeeze(-1) / gaps  # (..., 2)
        outer = (others * share[..., None, :]).sum(-1)[..., None] * leading[..., None, :]
        return ((outer + outer.mT) / 2).to(gradient.dtype), None
