"""The gradient of ICP: that of the public functions, at the pairs on which it came to rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from p2plane.geometry import se3
from p2plane.solve.alignment import Alignment
from p2plane.solve.distances import plane_to_plane, point_to_plane, point_to_point, symmetric_point_to_plane

_FUNCTIONS: dict[str, Callable[..., Alignment]] = {
    "point": point_to_point,
    "plane": point_to_plane,
    "symmetric": symmetric_point_to_plane,
    "plane-to-plane": plane_to_plane,
}
_SAME_MINIMUM = 1e-3  # how far the two poses may be apart, in the entries of R and in units of the cloud's radius


def with_gradient(alignment: Alignment, distance: str, hold: Sequence[str]) -> Alignment:
    """The alignment with the gradient of its pose by its pairs; not converged where that belongs to another minimum."""
    problem, T = alignment._problem, alignment._T.detach()
    pairs = problem.pairs
    layer = _FUNCTIONS[distance](
        pairs.source,
        pairs.target,
        *problem.tensors,
        mask=pairs.mask,
        initial=se3.homogeneous(T),
        robust=problem.kernel,
        hold=hold,
        undetermined_below=alignment._settings.limits.undetermined_below,
    )
    T = T + (layer._T - layer._T.detach())
    converged = alignment.converged & (layer.converged & _close(layer, alignment)).view_as(alignment.converged)
    poses = se3.homogeneous(T).to(alignment.T_target_source.dtype)
    return replace(alignment, T_target_source=poses.view_as(alignment.T_target_source), converged=converged, _T=T)


def _close(layer: Alignment, alignment: Alignment) -> Tensor:
    """(B,) whether two poses are one, seen where the cloud is."""
    frame = layer._linearized[0].frame
    apart = frame.to_local(layer._T.detach()) - frame.to_local(alignment._T.detach())
    return torch.linalg.vector_norm(apart, dim=(1, 2)) <= _SAME_MINIMUM
