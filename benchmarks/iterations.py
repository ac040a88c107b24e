"""The paper's three charts against the number of iterations: time, memory, and errors of the gradient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from cases import Case, bumpy_ellipsoids, plane
from measure import Contestant, Spread, peak_bytes, race, saved_bytes
from p2plane import point_to_plane

GRADIENTS = ("exact", "penalty", "unrolled")
INPUTS = ("source", "target", "normals")
CONVERGED = 60  # iterations after which nothing moves any more

Row = dict[str, Any]


def times(iterations: Sequence[int], rounds: int, seed: int) -> list[Row]:
    """Chart (a): milliseconds of forward and backward, one pair of 1024 points, as in the paper."""
    measured = race(_contestants(iterations, seed), rounds)
    return [
        {"iterations": count, "gradient": gradient, "phase": phase, **_milliseconds(phase, steps)}
        for (gradient, count), steps in measured.items()
        for phase in ("forward", "backward")
    ]


def memory(iterations: Sequence[int], seed: int) -> list[Row]:
    """Chart (b): bytes kept for backward, and the most alive at once, beyond the inputs; the pair of chart (a)."""
    rows = []
    for (gradient, count), contestant in _contestants(iterations, seed).items():
        peak = peak_bytes(contestant)
        rows.append(
            {
                "iterations": count,
                "gradient": gradient,
                "saved_bytes": saved_bytes(contestant),
                "peak_forward_bytes": peak.forward,
                "peak_backward_bytes": peak.backward,
            }
        )
    return rows


def errors(iterations: Sequence[int], noises: Sequence[float], pairs: int, seed: int) -> list[Row]:
    """Chart (c): the loss, and how far its gradients are from auto-differentiation, as medians over pairs.

    The errors are taken against auto-differentiation through as many iterations, as the paper does ("same"), and
    through so many that it has converged ("converged"), which is what the gradient ought to be.
    """
    rows = []
    for noise in noises:
        case = bumpy_ellipsoids(pairs, 1024, noise, seed, torch.float64)
        _, converged = loss_and_gradients(case, "unrolled", CONVERGED)
        for count in iterations:
            loss, same = loss_and_gradients(case, "unrolled", count)
            for gradient in ("exact", "penalty"):
                _, estimate = loss_and_gradients(case, gradient, count)
                head = {"noise": noise, "iterations": count, "gradient": gradient, "loss": loss.median().item()}
                for reference, truth in (("same", same), ("converged", converged)):
                    rows += [head | {"reference": reference} | row for row in _compared(estimate, truth)]
    return rows


def loss_and_gradients(case: Case, gradient: str, iterations: int) -> tuple[Tensor, tuple[Tensor, ...]]:
    """(B,) rigid motion losses, and their gradients by source, target and normals."""
    inputs = [tensor.detach().requires_grad_() for tensor in (case.source, case.target, case.normals)]
    alignment = point_to_plane(*inputs, solver="accumulate", gradient=gradient, max_iterations=iterations)
    loss = rigid_motion_loss(alignment.T_target_source, case.T_target_source)
    return loss.detach(), torch.autograd.grad(loss.sum(), inputs)


def rigid_motion_loss(T: Tensor, T_true: Tensor) -> Tensor:
    """(B,) ``|R^T R_true - I|_F^2 + |t - t_true|^2``, the loss of DCP, which the paper trains with."""
    R_apart = T[:, :3, :3].mT @ T_true[:, :3, :3] - torch.eye(3, dtype=T.dtype, device=T.device)
    return R_apart.square().sum((1, 2)) + (T[:, :3, 3] - T_true[:, :3, 3]).square().sum(-1)


def _contestants(iterations: Sequence[int], seed: int) -> dict[tuple[str, int], Contestant]:
    case = bumpy_ellipsoids(1, 1024, 0.01, seed, torch.float32)
    return {
        (gradient, count): plane(case, weighted=False, solver="accumulate", gradient=gradient, max_iterations=count)
        for count in iterations
        for gradient in GRADIENTS
    }


def _milliseconds(phase: str, steps: Sequence[Any]) -> Row:
    low, median, high = Spread.of(1e3 * getattr(step, phase) for step in steps)
    return {"milliseconds": median, "lower_quartile": low, "upper_quartile": high}


def _compared(estimate: Sequence[Tensor], truth: Sequence[Tensor]) -> Iterator[Row]:
    for name, value, reference in zip(INPUTS, estimate, truth, strict=True):
        squared = (value - reference).square().mean((1, 2))  # (B,)
        relative = squared / reference.square().mean((1, 2))
        yield {"input": name, "mse": squared.median().item(), "relative_mse": relative.median().item()}
