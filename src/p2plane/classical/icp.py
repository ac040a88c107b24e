"""Iterative closest points with every distance of the core, from coarse to fine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from p2plane.classical.clouds import read_clouds, with_normals
from p2plane.classical.rounds import (
    DISTANCES,
    Outcome,
    Rules,
    batched,
    distance_tensors,
    problem_of,
    register,
)
from p2plane.classical.scales import Scale, Surface, positive_or_none
from p2plane.geometry import se3
from p2plane.solve.alignment import Alignment, Round
from p2plane.solve.implicit import Settings
from p2plane.solve.inputs import Array, Pairs, free_directions, one_of, transform_from
from p2plane.solve.minimize import Limits
from p2plane.solve.problem import Problem
from p2plane.solve.robust import RobustKernel

__all__ = ["icp"]


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
    undetermined_below: float = 1e-6,
    source_mask: Array | None = None,
    target_mask: Array | None = None,
    generator: torch.Generator | None = None,
) -> Alignment:
    """Rigid motion that brings a cloud onto another, each point onto the nearest of the other cloud, again and again.

    A round finds the partners in a KD-tree that is built once, sums them up in one pass, and takes the pose that fits
    them best. The rounds end when one moves the cloud by less than the tolerance.

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
        undetermined_below: as in `point_to_plane`.
        source_mask: (..., N) bool, true where a point is present; what stands elsewhere does not matter.
        target_mask: (..., M) bool.
        generator: nothing is drawn at random; it is here so that ICP can be called like a network.

    Returns:
        An `Alignment` of the last round's pairs, one for each source point of the last scale; those that do not count
        are masked. ``rounds[0]`` holds them, with their rows in the clouds as ``extras["source_rows"]`` and
        ``extras["target_rows"]``, -1 where a point has no partner. `converged` is false where fewer than three pairs
        were left or the rounds did not come to rest.
    """
    one_of("distance", distance, DISTANCES)
    _refuse(trim, max_normal_angle, tolerance, undetermined_below)
    clouds = read_clouds(source, target, source_normals, target_normals, source_mask, target_mask)
    base = Scale(None, max_distance, max_iterations, robust)
    if tolerance is None:
        tolerance = 1e-6 if clouds.like.dtype == torch.float64 else 1e-5
    settings = Settings(limits=Limits(50, tolerance / 10, undetermined_below), free=free_directions(hold))
    rules = [_rules(scale, base, distance, trim, max_normal_angle, tolerance, settings) for scale in scales or [base]]
    T_initial = _initial(initial, clouds.batch_shape, clouds.like)
    ends = []
    estimated = False
    for pair, T in zip(clouds.pairs, T_initial.split(1), strict=True):
        (one, one_estimated), (other, other_estimated) = (
            with_normals(surface, needed)
            for surface, needed in zip(pair, _needs_normals(distance, max_normal_angle), strict=True)
        )
        estimated = estimated or one_estimated or other_estimated
        ends.append(_coarse_to_fine(one, other, T, list(zip(scales or [base], rules, strict=True))))
    return replace(_alignment(ends, clouds.batch_shape, clouds.like, rules[-1]), normals_estimated=estimated)


_End = tuple[Surface, Surface, Outcome]


def _coarse_to_fine(source: Surface, target: Surface, T: Tensor, scales: list[tuple[Scale, Rules]]) -> _End:
    """The clouds of the last scale, and where it ended."""
    iterations = 0
    with torch.no_grad():
        for scale, rules in scales:
            seen = source.thinned(scale.voxel), target.thinned(scale.voxel)
            outcome = register(*seen, T, rules)
            T, iterations = outcome.T, iterations + outcome.iterations
    return *seen, replace(outcome, iterations=iterations)


def _alignment(ends: list[_End], batch_shape: torch.Size, like: Tensor, rules: Rules) -> Alignment:
    problems = [_problem(*end, rules) for end in ends]
    problem = batched(problems, batch_shape)
    T = torch.cat([outcome.T for _, _, outcome in ends])
    device = like.device
    converged = torch.tensor([outcome.converged for _, _, outcome in ends], device=device)
    iterations = torch.tensor([outcome.iterations for _, _, outcome in ends], device=device)
    poses = se3.homogeneous(T).to(like.dtype)
    weights = (
        torch.ones_like(problem.pairs.source[..., 0])
        if problem.pairs.mask is None
        else problem.pairs.mask.to(like.dtype)
    )
    last = Round(poses, problem.pairs.source, problem.pairs.target, weights, extras=_rows(ends))
    return Alignment(
        poses.reshape(*batch_shape, 4, 4),
        converged.reshape(batch_shape),
        iterations.reshape(batch_shape),
        T,
        problem,
        rules.settings,
        (last,),
    )


def _problem(source: Surface, target: Surface, outcome: Outcome, rules: Rules) -> Problem:
    points = target.points if len(target.points) else target.points.new_zeros(1, 3)
    tensors = distance_tensors(rules.distance, source.normals, target.normals)
    return problem_of(source.points, points, tensors, outcome.matches, rules)


def _rows(ends: list[_End]) -> dict[str, Tensor]:
    """(B, K) rows of the partners in the caller's clouds, -1 where there are none."""
    ours = [source.rows for source, _, _ in ends]
    theirs = [target.rows[outcome.matches.partners].where(outcome.matches.kept, -1) for _, target, outcome in ends]
    pad = torch.nn.utils.rnn.pad_sequence
    return {
        "source_rows": pad(ours, batch_first=True, padding_value=-1),
        "target_rows": pad(theirs, batch_first=True, padding_value=-1),
    }


def _needs_normals(distance: str, max_normal_angle: float | None) -> tuple[bool, bool]:
    checked = max_normal_angle is not None
    return checked or distance in ("symmetric", "plane-to-plane"), checked or distance != "point"


def _rules(
    scale: Scale,
    base: Scale,
    distance: str,
    trim: float | None,
    max_normal_angle: float | None,
    tolerance: float,
    settings: Settings,
) -> Rules:
    max_distance = scale.max_distance or base.max_distance or math.inf
    max_iterations = scale.max_iterations or base.max_iterations
    assert max_iterations is not None
    kernel = scale.robust or base.robust
    return Rules(distance, kernel, max_distance, trim, max_normal_angle, max_iterations, tolerance, settings)


def _initial(initial: Array | None, batch_shape: torch.Size, like: Tensor) -> Tensor:
    """(B, 3, 4) float64."""
    if initial is None:
        return torch.eye(4, dtype=torch.float64, device=like.device)[:3].repeat(batch_shape.numel(), 1, 1)
    points = like.new_zeros(batch_shape.numel(), 0, 3)
    return transform_from("initial", initial, Pairs(points, points, None, None, None, batch_shape))


def _refuse(
    trim: float | None, max_normal_angle: float | None, tolerance: float | None, undetermined_below: float
) -> None:
    if trim is not None and not 0 < trim <= 1:
        raise ValueError(f"trim must be in (0, 1], got {trim!r}")
    positive_or_none("max_normal_angle", max_normal_angle)
    positive_or_none("tolerance", tolerance)
    if not 0 < undetermined_below < 1:
        raise ValueError(f"undetermined_below must be between 0 and 1, got {undetermined_below}")
