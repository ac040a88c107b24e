"""The public functions: matched pairs in, `Alignment` out, one function for each distance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from p2plane.geometry import se3
from p2plane.solve import reweighted
from p2plane.solve.alignment import Alignment
from p2plane.solve.arrays import Constant, beside
from p2plane.solve.implicit import Settings, optimal_pose
from p2plane.solve.inputs import (
    Array,
    Pairs,
    free_directions,
    holds,
    one_of,
    pairs_from,
    refuse_not_finite,
    transform_from,
)
from p2plane.solve.newton import Limits
from p2plane.solve.problem import Problem, fixed_metric, plane_to_plane_metric, symmetric_metric
from p2plane.solve.robust import RobustKernel
from p2plane.solve.unrolled import unrolled

_IDENTITY = Constant.of(torch.eye(3, 4, dtype=torch.float64))


def point_to_plane(
    source: Array,
    target: Array,
    normals: Array,
    weights: Array | None = None,
    mask: Array | None = None,
    *,
    initial: Array | None = None,
    solver: str = "newton",
    gradient: str = "exact",
    robust: RobustKernel | None = None,
    hold: Sequence[str] = (),
    max_iterations: int | None = None,
    undetermined_below: float = 1e-6,
) -> Alignment:
    """Rigid motion that brings points onto the planes of their partners.

    Minimises ``sum_i w_i (n_i . (R x_i + t - y_i))^2`` over rotations R and translations t (eq. 1 of the paper,
    weights as in its supplement).

    Args:
        source: (..., N, 3) points x. NumPy arrays are welcome here and below.
        target: (..., N, 3) points y; row i is the partner of source row i.
        normals: (..., N, 3) normals n of the target, of unit length; the sign does not matter.
        weights: (..., N) not negative, zero means absent; None for ones.
        mask: (..., N) bool, true where a pair is present. What stands in absent rows does not matter, not even NaN.
        initial: (..., 4, 4) where the search may start, and where undetermined and held directions stay; None for the
            identity. It has no gradient.
        solver: "newton" finds the minimum from any angle and stops when it is there; "accumulate" takes exactly
            `max_iterations` linearised steps from `initial`, as the paper does.
        gradient: "exact" by the implicit function theorem on SE(3); "penalty", the paper's approximation of it;
            "unrolled" through the iterations themselves, with "accumulate" only.
        robust: a kernel for outliers: `Huber`, `Cauchy`, `GemanMcClure`, `Tukey` or `Trimmed`.
        hold: directions that keep the value they have in `initial`, out of "rx", "ry", "rz" (turns about the target's
            axes) and "tx", "ty", "tz" (components of t): ("rx", "ry", "tz") for planar motion, ("rx", "ry") for known
            gravity along z.
        max_iterations: the most Newton steps (default 50), or the number of accumulated steps (default 10).
        undetermined_below: eigenvalue of the mean ``J H J^T``, in units of the cloud's radius, under which a direction
            counts as undetermined: it stays at `initial`, and no gradient flows along it.

    Returns:
        An `Alignment` for the batch.

    Gradient: source, target, normals, weights; also of second order. With gradient="exact" and no kernel, in forward
    mode too.
    """
    pairs, tensors = pairs_from(source, target, weights, mask, normals=(normals, 1))
    problem = Problem(pairs, fixed_metric, (tensors["normals"],), robust)
    return _align(problem, initial, hold, max_iterations, undetermined_below, solver=solver, gradient=gradient)


def point_to_point(
    source: Array,
    target: Array,
    weights: Array | None = None,
    mask: Array | None = None,
    *,
    initial: Array | None = None,
    robust: RobustKernel | None = None,
    hold: Sequence[str] = (),
    max_iterations: int | None = None,
    undetermined_below: float = 1e-6,
) -> Alignment:
    """Rigid motion that brings points onto their partners (Procrustes, Kabsch): ``sum_i w_i |R x_i + t - y_i|^2``.

    In closed form by a singular value decomposition, whose own derivative is not used: gradients stay finite on
    isotropic, collinear, coincident and mirrored clouds.

    Arguments, result and gradient as in `point_to_plane`, without normals.
    """
    pairs, _ = pairs_from(source, target, weights, mask)
    return _align(Problem(pairs, fixed_metric, (), robust), initial, hold, max_iterations, undetermined_below)


def point_to_distribution(
    source: Array,
    target: Array,
    precisions: Array,
    weights: Array | None = None,
    mask: Array | None = None,
    *,
    initial: Array | None = None,
    solver: str = "newton",
    gradient: str = "exact",
    robust: RobustKernel | None = None,
    hold: Sequence[str] = (),
    max_iterations: int | None = None,
    undetermined_below: float = 1e-6,
) -> Alignment:
    """Rigid motion under any fixed quadratic distance: ``sum_i w_i e_i^T W_i e_i`` with ``e_i = R x_i + t - y_i``.

    W_i is an inverse covariance, an averaged normal tensor, or plane-to-plane with covariances held fixed.

    Args:
        precisions: (..., N, 3, 3) W, symmetric (what is not is ignored) and positive semi-definite.

    The other arguments, the result and the gradient as in `point_to_plane`.
    """
    pairs, tensors = pairs_from(source, target, weights, mask, precisions=(precisions, 2))
    problem = Problem(pairs, fixed_metric, (tensors["precisions"],), robust)
    if gradient == "unrolled":
        raise ValueError("gradient='unrolled' must go with normals, got precisions: use point_to_plane")
    return _align(problem, initial, hold, max_iterations, undetermined_below, solver=solver, gradient=gradient)


def symmetric_point_to_plane(
    source: Array,
    target: Array,
    source_normals: Array,
    target_normals: Array,
    weights: Array | None = None,
    mask: Array | None = None,
    *,
    form: str = "iterated",
    initial: Array | None = None,
    robust: RobustKernel | None = None,
    hold: Sequence[str] = (),
    max_iterations: int | None = None,
    undetermined_below: float = 1e-6,
) -> Alignment:
    """Rigid motion that lets the normals of both sides count: ``sum_i w_i ((R x_i + t - y_i) . k_i)^2``.

    The direction k_i is that of ``R m_i + s_i n_i``, with the sign that makes the two normals agree, so flipped normals
    do not matter. Exact for pairs on a common circle, where point-to-plane is not (Rusinkiewicz 2019). We take the unit
    vector, not the sum: the sum would reward turning the normals apart, and double every distance.

    Args:
        source_normals: (..., N, 3) unit normals m of the source.
        target_normals: (..., N, 3) unit normals n of the target.
        form: as in `plane_to_plane`.

    The other arguments and the result as in `point_to_plane`.

    Gradient: source, target, both normals, weights; also of second order.
    """
    pairs, tensors = pairs_from(
        source, target, weights, mask, source_normals=(source_normals, 1), target_normals=(target_normals, 1)
    )
    refuse_not_finite(pairs, **tensors)
    problem = Problem(
        pairs, symmetric_metric, (tensors["source_normals"], tensors["target_normals"]), robust, turns=True
    )
    return _align(problem, initial, hold, max_iterations, undetermined_below, form=form)


def plane_to_plane(
    source: Array,
    target: Array,
    source_covariances: Array,
    target_covariances: Array,
    weights: Array | None = None,
    mask: Array | None = None,
    *,
    form: str = "iterated",
    initial: Array | None = None,
    robust: RobustKernel | None = None,
    hold: Sequence[str] = (),
    max_iterations: int | None = None,
    undetermined_below: float = 1e-6,
) -> Alignment:
    """Rigid motion between two clouds of Gaussians (generalised ICP): ``W_i = (C_i^y + R C_i^x R^T)^-1``.

    Args:
        source_covariances: (..., N, 3, 3) C^x, positive semi-definite.
        target_covariances: (..., N, 3, 3) C^y; the sum of the two must be positive definite.
        form: which of three different things is meant. "iterated" recomputes W_i between steps, as programs for
            generalised ICP do, and ends where W_i, held still, has its minimum. "full" minimises the energy with W_i(R)
            inside; under noise that can pay for turning away from the truth, as W_i shrinks. "fixed" takes W_i at
            `initial` and leaves it there. Each has its own, exact gradient.

    The other arguments and the result as in `point_to_plane`.

    Gradient: source, target, both covariances, weights; also of second order.
    """
    pairs, tensors = pairs_from(
        source,
        target,
        weights,
        mask,
        source_covariances=(source_covariances, 2),
        target_covariances=(target_covariances, 2),
    )
    refuse_not_finite(pairs, **tensors)
    covariances = tensors["source_covariances"], tensors["target_covariances"]
    _check_covariances(pairs, *covariances)
    problem = Problem(pairs, plane_to_plane_metric, covariances, robust, turns=True)
    return _align(problem, initial, hold, max_iterations, undetermined_below, form=form)


def _align(
    problem: Problem,
    initial: Array | None,
    hold: Sequence[str],
    max_iterations: int | None,
    undetermined_below: float,
    *,
    solver: str = "newton",
    gradient: str = "exact",
    form: str = "full",
) -> Alignment:
    """Solve a problem in the way that the options ask for."""
    settings = _settings(problem, solver, gradient, hold, max_iterations, undetermined_below)
    one_of("form", form, ("full", "iterated", "fixed"))
    pairs = problem.pairs
    if initial is None:
        T_initial = beside(pairs.source, _IDENTITY).expand(len(pairs.source), 3, 4)
    else:
        T_initial = transform_from("initial", initial, pairs)
    if problem.turns and form == "fixed":
        metric = problem.metric(T_initial[:, :, :3], *problem.tensors)
        assert metric is not None
        problem = Problem(pairs, fixed_metric, (metric,), problem.kernel)
    if gradient == "unrolled":
        T, last_step = unrolled(replace(pairs, metric=problem.tensors[0]), T_initial, settings.limits.max_iterations)
        T, converged = T.double(), last_step <= settings.limits.tolerance
        iterations = torch.full_like(converged, settings.limits.max_iterations, dtype=torch.int64)
        pose = _pose(T, pairs)
    elif problem.turns or problem.kernel is not None:
        T, converged, iterations = reweighted.solve(problem, T_initial, form, settings)
        pose = _pose(T, pairs)
    else:
        T, pose, converged, iterations = optimal_pose(problem.linearized(T_initial), T_initial, settings)
    if len(pairs.batch_shape) != 1:
        pose, converged, iterations = (
            each.reshape((*pairs.batch_shape, *each.shape[1:])) for each in (pose, converged, iterations)
        )
    return Alignment(pose, converged, iterations, T, problem, settings)


def _pose(T: Tensor, pairs: Pairs) -> Tensor:
    """(B, 4, 4) as precise as the points, of float64 (B, 3, 4)."""
    return se3.homogeneous(T).to(pairs.precision)


def _settings(
    problem: Problem,
    solver: str,
    gradient: str,
    hold: Sequence[str],
    max_iterations: int | None,
    undetermined_below: float,
) -> Settings:
    one_of("solver", solver, ("newton", "accumulate"))
    one_of("gradient", gradient, ("exact", "penalty", "unrolled"))
    free = free_directions(hold)
    if gradient == "unrolled" and solver != "accumulate":
        raise ValueError(f"gradient='unrolled' must go with solver='accumulate', got solver={solver!r}")
    if problem.kernel is not None and not isinstance(problem.kernel, RobustKernel):
        raise ValueError(f"robust must be a kernel such as Huber(0.1), got {problem.kernel!r}")
    if problem.kernel is not None and (solver != "newton" or gradient != "exact"):
        raise ValueError(f"robust must go with solver='newton' and gradient='exact', got {solver!r} and {gradient!r}")
    if len(free) < 6 and (solver != "newton" or gradient != "exact"):
        raise ValueError(f"hold must go with solver='newton' and gradient='exact', got {solver!r} and {gradient!r}")
    if max_iterations is None:
        max_iterations = 50 if solver == "newton" else 10
    if not isinstance(max_iterations, int) or max_iterations < 1:
        raise ValueError(f"max_iterations must be a positive integer, got {max_iterations!r}")
    if not 0 < undetermined_below < 1:
        raise ValueError(f"undetermined_below must be between 0 and 1, got {undetermined_below}")
    tolerance = 1e-9 if problem.pairs.precision == torch.float64 else 1e-5
    return Settings(solver, gradient, Limits(max_iterations, tolerance, undetermined_below), free)


def _check_covariances(pairs: Pairs, source_covariances: Tensor, target_covariances: Tensor) -> None:
    total = source_covariances.detach().double() + target_covariances.detach().double()
    definite = torch.linalg.cholesky_ex(total).info == 0
    if pairs.mask is not None:
        definite = definite | ~pairs.mask
    if holds(definite.all()) is False:
        pair, point = (~definite).nonzero()[0].tolist()
        raise ValueError(
            "source_covariances + target_covariances must be positive definite, "
            f"got {total[pair, point].tolist()} at point {point} of pair {pair}"
        )


__all__ = ["plane_to_plane", "point_to_distribution", "point_to_plane", "point_to_point", "symmetric_point_to_plane"]
