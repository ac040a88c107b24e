"""Point-to-point in closed form, from the summary: the rotation nearest to the cross-covariance."""

from __future__ import annotations

import torch
from torch import Tensor

from p2plane.geometry import so3
from p2plane.solve.quadratic import Quadratic


def closed_form(quadratic: Quadratic, T_initial: Tensor) -> tuple[Tensor, None]:
    """(B, 3, 4) the minimiser of a point-to-point summary (Kabsch): ``argmax tr(R^T sum w y x^T)``, centroids joined.

    And None: this is sure to be the lowest minimum.

    Only the value comes from a singular value decomposition. The gradient comes from `implicit`, which divides by sums
    of singular values, never by their differences: it stays finite on isotropic, collinear and mirrored clouds.
    """
    cross_covariance = -quadratic.matrix[:, :12, 12].unflatten(1, (3, 4))[:, :, :3]
    return torch.cat([so3.project(cross_covariance), torch.zeros_like(T_initial[:, :, 3:])], dim=-1), None
