"""Point-to-point in closed form, from the summary: the rotation nearest to the cross-covariance."""

from __future__ import annotations

from torch import Tensor

from p2plane.solve.arrays import namespace, nearest_rotation
from p2plane.solve.quadratic import Quadratic
from p2plane.solve.starts import Proposal


def closed_form(quadratic: Quadratic, T_initial: Tensor) -> Proposal:
    """The minimiser of a point-to-point summary (Kabsch): ``argmax tr(R^T sum w y x^T)``, centroids joined.

    Only the value comes from a singular value decomposition. The gradient comes from `implicit`, which divides by sums
    of singular values, never by their differences: it stays finite on isotropic, collinear and mirrored clouds.
    """
    cross_covariance = -quadratic.matrix[:, :12, 12].reshape(-1, 3, 4)[:, :, :3]
    R, t = nearest_rotation(cross_covariance), -3 * quadratic.matrix[:, 3:12:4, 12:]  # the sum of y over that of w
    return Proposal(namespace(R).concatenate([R, t], -1))
