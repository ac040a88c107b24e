"""Proposition 1 of the paper for any energy on poses: what the minimiser's gradient is, however it was found.

With half the slope ``F(T, theta)`` of an energy along the six tangent directions, a minimiser obeys ``F = 0``, and so

    dT = -(dF/dT)^-1 dF/dtheta dtheta.

The 6 x 6 matrix comes from `torch.func`, the rest is one vector-Jacobian product. Nothing asks for F to be the slope of
an energy: the fixed point of an iteration that holds part of the energy still obeys such an equation too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from p2plane.geometry import se3, so3
from p2plane.solve.tangent import eigenspace_above, restricted

Energy = Callable[..., Tensor]  # (T (B, 3, 4), *theta) -> (B,)
Field = Callable[..., Tensor]  # (T (B, 3, 4), *theta) -> (B, F)
Step = Callable[[Tensor, Tensor], Tensor]  # (T (B, 3, 4), step (B, F)) -> (B, 3, 4)


def implicit_pose(
    energy: Energy, T_target_source: Tensor, *parameters: Tensor, undetermined_below: float = 1e-9
) -> Tensor:
    """A minimiser with the gradient of ``argmin_T energy(T, *parameters)`` by the parameters.

    Args:
        energy: takes (..., 4, 4) transforms and the parameters, returns one energy (...) for each transform, made of
            operations that PyTorch can differentiate twice.
        T_target_source: (..., 4, 4) minimisers, from any solver.
        parameters: floating-point tensors that the energy depends on.
        undetermined_below: share of the Hessian's largest eigenvalue under which a direction counts as undetermined;
            no gradient flows along it.

    Returns:
        (..., 4, 4) the same transforms.

    Gradient: parameters, exact where the transforms are minimisers. Differentiable again.
    """
    batch_shape = T_target_source.shape[:-2]

    def flat_energy(T: Tensor, *theta: Tensor) -> Tensor:
        return energy(se3.homogeneous(T).view(*batch_shape, 4, 4), *theta).reshape(-1)

    slope = slope_of(flat_energy, left_step)
    T = T_target_source.detach()[..., :3, :].reshape(-1, 3, 4)
    with torch.no_grad():
        hessian = tangent_jacobian(slope, left_step, T, parameters)
        size = hessian.abs().amax((1, 2)).clamp_min(1e-300)
        projector = eigenspace_above(undetermined_below, hessian / size[:, None, None])
    T = ImplicitRoot.apply(slope, left_step, projector, T, *parameters)
    return se3.homogeneous(T).view(*batch_shape, 4, 4)


def left_step(T: Tensor, step: Tensor) -> Tensor:
    """(B, 3, 4) ``[exp(a) R | exp(a) t + b]`` to the second order in the step: all that derivatives at zero see."""
    skew = so3.hat(step[:, :3])
    moved = T + skew @ T + skew @ (skew @ T) / 2
    return moved + torch.nn.functional.pad(step[:, 3:, None], (3, 0))


def slope_of(energy: Energy, step: Step, size: int = 6) -> Field:
    """Half the slope of an energy along the tangent directions of a step, `size` of them."""

    def slope(T: Tensor, *theta: Tensor) -> Tensor:
        def along(xi: Tensor) -> Tensor:
            return energy(step(T, xi), *theta).sum() / 2

        return torch.func.grad(along)(T.new_zeros(len(T), size))

    return slope


def tangent_jacobian(field: Field, step: Step, T: Tensor, theta: tuple[Tensor, ...], size: int = 6) -> Tensor:
    """(B, F, F) derivative of a field along the tangent directions; for a slope, at a minimum, half the Hessian."""
    pull_back = torch.func.vjp(lambda xi: field(step(T, xi), *theta), T.new_zeros(len(T), size))[1]
    basis = torch.eye(size, dtype=T.dtype, device=T.device)[:, None].expand(size, len(T), size)
    (rows,) = torch.func.vmap(pull_back)(basis)  # (F, B, F)
    return rows.transpose(0, 1)


class ImplicitRoot(torch.autograd.Function):
    """A root T of ``field(T, *theta) = 0`` with the gradient of the implicit function theorem by theta."""

    generate_vmap_rule = True

    @staticmethod
    def forward(field: Field, step: Step, projector: Tensor, T: Tensor, *theta: Tensor) -> Tensor:  # type: ignore[override]
        return T.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        ctx.field, ctx.step, projector, _, *theta = inputs
        ctx.save_for_backward(projector, output, *theta)

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple:  # type: ignore[override]
        projector, T, *theta = ctx.saved_tensors
        inverse = _inverse(ctx.field, ctx.step, projector, T, theta)
        along = torch.func.grad(lambda xi: (G * ctx.step(T, xi)).sum())(T.new_zeros(projector.shape[:-1]))
        adjoint = -(inverse.mT @ along[:, :, None]).squeeze(-1)
        pull_back = torch.func.vjp(lambda *theta: ctx.field(T, *theta), *theta)[1]
        return None, None, None, None, *pull_back(adjoint)


def _inverse(field: Field, step: Step, projector: Tensor, T: Tensor, theta: Any) -> Tensor:
    """(B, F, F) inverse of the field's derivative on the projector's range, zero on the rest."""
    jacobian = tangent_jacobian(field, step, T, tuple(theta), projector.shape[-1])
    return projector @ torch.linalg.solve(restricted(jacobian, projector), projector)
