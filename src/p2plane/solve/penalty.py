"""The paper's approximate adjoint: rotations held together by a penalty instead of living on SO(3).

With ``E^ = E + lambda |R^T R - I|^2`` (eq. 8) the twelve entries of T are free, the Hessian is
``2 H + 4 lambda M`` (eq. 10, 11), and the adjoint direction is ``V = 2 mat(Hessian^-1 vec(G))``. Neither lambda nor the
penalty is the same in other coordinates, so this works in the caller's, as the paper does.
"""

from __future__ import annotations

import torch
from torch import Tensor

from p2plane.solve.quadratic import Quadratic

LARGEST_LAMBDA = 1e6  # of the Hessian's size; lambda is 0 / 0 where R is orthogonal to the last digit


def penalty_adjoint(quadratic: Quadratic, T: Tensor, G: Tensor) -> Tensor:
    """(B, 3, 4) V for an upstream gradient G by the caller's T."""
    R, identity = T[:, :, :3], torch.eye(3, dtype=T.dtype, device=T.device)
    form = _in_the_callers_coordinates(quadratic)
    half_gradient = (form @ torch.cat([T.flatten(1), torch.ones_like(T[:, :1, 0])], dim=1)[:, :, None]).squeeze(-1)
    by_rotation = 2 * half_gradient[:, :12].unflatten(1, (3, 4))[:, :, :3]  # dE/dR
    penalty = 4 * R @ (R.mT @ R - identity)  # dP/dR; the paper prints the factors in the other order
    strength = (penalty * by_rotation).sum((1, 2)).abs() / penalty.square().sum((1, 2)).clamp_min(1e-300)
    size = form[:, :12, :12].diagonal(dim1=1, dim2=2).sum(-1)
    strength = torch.minimum(strength.nan_to_num(nan=torch.inf), LARGEST_LAMBDA * size)

    hessian = 2 * form[:, :12, :12] + 4 * strength[:, None, None] * _penalty_hessian(R)
    # A floor far below anything that counts keeps clouds that leave directions open from dividing by zero.
    floor = 1e-12 * (size + 1e-30)[:, None] * torch.ones_like(hessian[:, 0])
    V = 2 * torch.linalg.solve(hessian + torch.diag_embed(floor), G.flatten(1)[:, :, None]).squeeze(-1).unflatten(
        1, (3, 4)
    )
    return V / quadratic.total


def _penalty_hessian(R: Tensor) -> Tensor:
    """(B, 12, 12) the paper's M, eq. 11, ``d2P / dR dR / 4``, among the rotation's entries of T row by row."""
    identity = torch.eye(3, dtype=R.dtype, device=R.device)
    crossed = torch.einsum("zil,zkj->zijkl", R, R)
    rows = torch.einsum("zik,jl->zijkl", R @ R.mT - identity, identity)
    columns = torch.einsum("ik,zjl->zijkl", identity, R.mT @ R - identity)
    same = torch.einsum("ik,jl->ijkl", identity, identity)
    M = crossed + same + rows + columns  # (B, 3, 3, 3, 3): entries (i, j) and (k, l) of R
    return torch.nn.functional.pad(M, (0, 1, 0, 0, 0, 1)).flatten(3, 4).flatten(1, 2)


def _in_the_callers_coordinates(quadratic: Quadratic) -> Tensor:
    """(B, 13, 13) the summary as a form in the caller's (T, 1), divided by the total weight."""
    frame = quadratic.frame
    batch = len(frame.scale)
    change = torch.eye(13, dtype=torch.float64, device=frame.scale.device).repeat(batch, 1, 1)  # g~' = change g~
    shrink = 1 / frame.scale[:, 0]
    for row in range(3):
        entry = 4 * row + 3
        change[:, entry, 4 * row : 4 * row + 3] = frame.source_center[:, :, 0] * shrink
        change[:, entry, entry] = shrink[:, 0]
        change[:, entry, 12] = -frame.target_center[:, row, 0] * shrink[:, 0]
    return change.mT @ quadratic.matrix @ change * frame.scale.square()
