"""Iterative closest points with every distance of the core, from coarse to fine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from p2plane.classical.clouds import read_clouds, with_normals
from p2plane.classical.gradient import with_gradient
from p2plane.classical.problems import DISTANCES, Distance
from p2plane.classical.result import End, alignment_of
from p2plane.classical.rounds import Rules, register
from p2plane.classical.scales import Scale, Surface, positive_or_none
from p2plane.solve.alignment import Alignment
from p2plane.solve.implicit import Settings
from p2plane.solve.inputs import Array, Pairs, free_directions, one_of, transform_from
from p2plane.solve.newton import Limits
from p2plane.solve.robust import RobustKernel

__all__ = ["Scale", "icp"]


def icp(
    source: Array,
    target: Array,
    source_normals: Array | None = None,
    target_normals: Array | None = None,
    *,
    initial: Array | None = None,
    distance: str = "plane",
    robust: RobustKernel | None = None,
    max_distance: float | None = None,
    trim: float | None = None,
    max_normal_angle: float | None = None,
    scales: Sequence[Scale] = (),
    hold: Sequence[str] = (),
    max_iterations: int = 50,
    tolerance: float | None = None,
    rmse_tolerance: float | None = None,
    undetermined_below: float = 1e-6,
    source_mask: Array | None = None,
    target_mask: Array | None = None,
    differentiable: bool = False,
    generator: torch.Generator | None = None,
) -> Alignment:
    """Rigid motion that brings a cloud onto another, each point onto the nearest of the other cloud, again and again.

    A round finds the partners in a KD-tree that is built once, sums them up in one pass, and takes the pose that fits
    them best. The rounds end when one moves the cloud by less than the tolerance; points that change their partners
    back and forth for ever then keep one of them. The first rounds on a large cloud look at an eighth of its points,
    the last ones at all. It all happens on the CPU, wherever the clouds are.

    Args:
        source: (N, 3) or (..., N, 3) the cloud that moves. NumPy arrays are welcome here and below.
        target: (M, 3) or (..., M, 3).
        source_normals: (..., N, 3) of unit length, zero where a point has none; estimated where they are needed and
            missing, and `normals_estimated` says so. Signs do not matter.
        target_normals: (..., M, 3) likewise.
        initial: (..., 4, 4) where the rounds start, and where undetermined and held directions stay; None for the
            identity.
        distance: "point", "plane" (of the target), "symmetric" (planes of both), or "plane-to-plane" (generalised ICP).
        robust: a kernel for the distances of the pairs: `Huber`, `Cauchy`, `GemanMcClure`, `Tukey` or `Trimmed`.
        max_distance: how far partners may be apart; None for any distance.
        trim: the share of the pairs, the nearest, that counts, in (0, 1]: about the overlap of the clouds.
        max_normal_angle: radians between the normals of partners above which a pair does not count.
        scales: from coarse to fine, each starting where the one before ended; none for one scale with all points.
        hold: directions that keep the value they have in `initial`, as in `point_to_plane`.
        max_iterations: the most rounds of a scale.
        tolerance: radians, and units of the cloud's radius, under which a round is the last; None for 1e-6 in float64
            and 1e-5 in float32.
        rmse_tolerance: a round is the last, too, if share and root mean square distance of the pairs change by less
            than this, the latter in the unit of the clouds: the rule of Open3D. None for never.
        undetermined_below: as in `point_to_plane`.
        source_mask: (..., N) bool, true where a point is present; what stands elsewhere does not matter.
        target_mask: (..., M) bool.
        differentiable: whether the pose gets the gradient that it has at the pairs of the last round.
        generator: nothing is drawn at random; it is here so that ICP can be called like a network.

    Returns:
        An `Alignment` of the last round's pairs, one for each source point of the last scale; those that do not count
        are masked. ``rounds[0]`` holds them, with their rows in the clouds as ``extras["source_rows"]`` and
        ``extras["target_rows"]``, -1 where a point has no partner. `converged` is false where fewer than three pairs
        were left or the rounds did not come to rest.

    Gradient: none, or with `differentiable` both clouds and their normals, as the public function of the distance gives
    it for the last round's pairs; which points are partners is discrete. Estimated normals have none.
    """
    one_of("distance", distance, DISTANCES)
    _refuse(trim, max_normal_angle, scales, tolerance, rmse_tolerance, undetermined_below)
    clouds = read_clouds(source, target, source_normals, target_normals, source_mask, target_mask, differentiable)
    scales = scales or [Scale()]
    base = Scale(None, max_distance, max_iterations, robust)
    if tolerance is None:
        tolerance = 1e-6 if clouds.like.dtype == torch.float64 else 1e-5
    settings = Settings(limits=Limits(50, max(tolerance / 10, 1e-9), undetermined_below), free=free_directions(hold))
    plain = Rules(
        Distance(distance), math.inf, trim, max_normal_angle, max_iterations, tolerance, rmse_tolerance, settings
    )
    rules = [_at_scale(plain, scale, base) for scale in scales]
    needs_normals = (True, True) if max_normal_angle is not None else plain.distance.needs_normals
    ends, estimated = [], False
    for pair, T in zip(clouds.pairs, _initial(initial, clouds.batch_shape), strict=True):
        (one, one_estimated), (other, other_estimated) = map(with_normals, pair, needs_normals)
        estimated = estimated or one_estimated or other_estimated
        ends.append(_coarse_to_fine(one, other, T, scales, rules))
    alignment = alignment_of(ends, clouds.batch_shape, clouds.like, rules[-1], estimated)
    return with_gradient(alignment, distance, hold) if differentiable else alignment


def _coarse_to_fine(
    source: Surface, target: Surface, T: np.ndarray, scales: Sequence[Scale], rules: Sequence[Rules]
) -> End:
    """Where the last scale ended, each starting from where the one before did; from T at first."""
    iterations = 0
    for scale, rule in zip(scales, rules, strict=True):
        seen = source.thinned(scale.voxel), target.thinned(scale.voxel)
        outcome = register(*seen, T, rule)
        T, iterations = outcome.T, iterations + outcome.iterations
    return End(*seen, outcome._replace(iterations=iterations))


def _at_scale(rules: Rules, scale: Scale, base: Scale) -> Rules:
    """The rules with what the scale says, or else the base."""
    return replace(
        rules,
        distance=replace(rules.distance, kernel=scale.robust or base.robust),
        max_distance=scale.max_distance or base.max_distance or math.inf,
        max_iterations=scale.max_iterations or base.max_iterations or rules.max_iterations,
    )


def _initial(initial: Array | None, batch_shape: torch.Size) -> np.ndarray:
    """(B, 3, 4)."""
    if initial is None:
        return np.broadcast_to(np.eye(4)[:3], (batch_shape.numel(), 3, 4))
    points = torch.zeros(batch_shape.numel(), 0, 3)
    return transform_from("initial", initial, Pairs(points, points, None, None, None, batch_shape)).numpy(force=True)


def _refuse(
    trim: float | None,
    max_normal_angle: float | None,
    scales: Sequence[Scale],
    tolerance: float | None,
    rmse_tolerance: float | None,
    undetermined_below: float,
) -> None:
    for scale in scales:
        if not isinstance(scale, Scale):
            raise ValueError(f"scales must hold Scale objects, got {scale!r}")
    if trim is not None and not 0 < trim <= 1:
        raise ValueError(f"trim must be in (0, 1], got {trim!r}")
    positive_or_none("max_normal_angle", max_normal_angle)
    positive_or_none("tolerance", tolerance)
    positive_or_none("rmse_tolerance", rmse_tolerance)
    if not 0 < undetermined_below < 1:
        raise ValueError(f"undetermined_below must be between 0 and 1, got {undetermined_below}")
