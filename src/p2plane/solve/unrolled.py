"""The paper's iteration, point by point, left to automatic differentiation: the reference for all that is faster."""

from __future__ import annotations

import torch
from torch import Tensor

from p2plane.geometry import so3
from p2plane.solve.inputs import Pairs


def unrolled(pairs: Pairs, T: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
    """Iterative accumulation (section 3.1, weights as in supplement B), in the dtype of the points.

    Args:
        pairs: with normals (B, N, 3) for a metric.
        T: (B, 3, 4) start.
        iterations: number of linearised solves.

    Returns:
        (B, 3, 4) poses, and (B,) the length of the last step.

    Gradient: source, target, normals, weights, through every iteration.
    """
    source, target, normals = pairs.source, pairs.target, pairs.metric
    assert normals is not None
    weights = torch.ones_like(source[..., 0]) if pairs.weights is None else pairs.weights
    if pairs.mask is not None:
        absent = ~pairs.mask[..., None]
        source, target, normals = (points.masked_fill(absent, 0.0) for points in (source, target, normals))
        weights = weights.masked_fill(~pairs.mask, 0.0)
    R, t = T[:, :, :3].to(source.dtype), T[:, :, 3:].to(source.dtype)
    identity = torch.eye(6, dtype=source.dtype, device=source.device)
    twist = source.new_zeros(len(source), 6, 1)
    for _ in range(iterations):
        moved = source @ R.mT + t.mT
        # n . (omega x p) = omega . (p x n), hence p x n in the rotation columns.
        jacobian = torch.cat([torch.linalg.cross(moved, normals), normals], dim=-1)  # (B, N, 6)
        heights = ((target - moved) * normals).sum(-1, keepdim=True)  # (B, N, 1)
        weighted = weights[..., None] * jacobian
        hessian = weighted.mT @ jacobian
        solvable = torch.linalg.cholesky_ex(hessian.detach()).info == 0
        hessian = torch.where(
            solvable[:, None, None], hessian, identity
        )  # a pair that cannot be solved stays where it is
        twist = torch.linalg.solve(hessian, weighted.mT @ heights) * solvable[:, None, None]
        turn = so3.exp(twist[:, :3, 0])
        R, t = turn @ R, turn @ t + twist[:, 3:]
    return torch.cat([R, t], dim=-1), twist.detach().norm(dim=(1, 2))
