"""What a solve returns: the pose, how the search ended, and on demand how well the data determines it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from p2plane.geometry import so3
from p2plane.solve.implicit import Settings, chart_for
from p2plane.solve.inputs import Pairs
from p2plane.solve.problem import Problem, fixed_metric
from p2plane.solve.quadratic import Quadratic, summarize
from p2plane.solve.tangent import Chart, derivatives


@dataclass(frozen=True)
class Observability:
    """Which motions the data determines: eigenvalues and eigenvectors of the mean ``J H J^T``.

    Rotations turn about `center` and are in radians; translations are in units of `scale`, the cloud's root mean square
    radius. So all six compare: an eigenvalue is the mean squared distance, in units of scale^2, that a unit of that
    motion causes, and small ones belong to motions that the data hardly sees.
    """

    eigenvalues: Tensor  # (..., 6) ascending
    directions: Tensor  # (..., 6, 6) row k is the motion (omega, v) of eigenvalue k
    determined: Tensor  # (...) number of eigenvalues that are not under the threshold
    center: Tensor  # (..., 3) the moved source centroid, in the target frame
    scale: Tensor  # (...)


@dataclass(frozen=True)
class Round:
    """One look at the clouds: what was matched with what, and the pose that followed."""

    T_target_source: Tensor
    """(B, 4, 4)."""
    source: Tensor
    """(B, K, 3) the source points that were matched, where they were at first."""
    matched: Tensor
    """(B, K, 3) their partners."""
    weights: Tensor | None = None
    """(B, K) how much each pair counts."""
    match: Tensor | None = None
    """(B, K, M) the match matrix."""
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    """What else a method has to say, by name."""


@dataclass(frozen=True)
class Alignment:
    """The poses of a batch of pairs, and what is known about them; `...` is the batch shape of the inputs."""

    T_target_source: Tensor
    """(..., 4, 4) maps source coordinates to target coordinates."""
    converged: Tensor
    """(...) bool: a minimum was reached. Where not, the pose is the last one tried, and its gradient is not what the
    implicit function theorem promises."""
    iterations: Tensor
    """(...) number of steps of the search."""

    _T: Tensor = field(repr=False)  # (B, 3, 4) float64
    _problem: Problem = field(repr=False)
    _settings: Settings = field(repr=False)
    rounds: tuple[Round, ...] = field(default=(), repr=False)
    """The rounds of a method that looks several times; empty for a single solve."""
    normals_estimated: bool = False
    """Whether normals were missing and had to be estimated."""

    @property
    def R(self) -> Tensor:
        """(..., 3, 3) rotations."""
        return self.T_target_source[..., :3, :3]

    @property
    def t(self) -> Tensor:
        """(..., 3) translations."""
        return self.T_target_source[..., :3, 3]

    @cached_property
    def energy(self) -> Tensor:
        """(...) what was minimised: the weighted sum of squared distances, or of the robust kernel of them."""
        return self._shaped(self._problem.energy(self._T))

    @cached_property
    def residuals(self) -> Tensor:
        """(..., N) distances after the motion: signed heights over planes, else lengths or Mahalanobis distances."""
        return self._shaped(self._problem.distances(self._T))

    @cached_property
    def observability(self) -> Observability:
        """Which of the six motions the data determines."""
        quadratic, T = self._linearized
        eigenvalues, vectors = torch.linalg.eigh(self._mean_information(Chart()))
        determined = (eigenvalues >= self._settings.limits.undetermined_below).sum(-1)
        center = quadratic.frame.target_center + quadratic.frame.scale * T[:, :, 3:]
        parts = eigenvalues.clamp_min(0), vectors.mT, determined, center[:, :, 0], quadratic.frame.scale[:, 0, 0]
        return Observability(*(self._shaped(part) for part in parts))

    @cached_property
    def sigma(self) -> Tensor:
        """(...) noise of a distance of weight one, from the residuals: ``sigma^2 = energy / (equations - determined)``.

        Never less than the rounding of the coordinates. The cloud's radius where there are no more equations than
        unknowns, as nothing can be said of the noise then.
        """
        return self._shaped(self._sigma)

    @cached_property
    def information(self) -> Tensor:
        """(..., 6, 6) ``J H J^T / sigma^2``, the inverse covariance of the pose in the coordinates (omega, v) of `se3`.

        It knows of noise alone, and takes the pairs and the metric as right: read it as optimistic.
        """
        pivot, scale = self._pivot(Chart())
        from_caller = _about(-pivot / scale, 1 / scale)
        information = from_caller.mT @ self._mean_information(Chart()) @ from_caller * self._precision[:, None, None]
        return self._shaped(information)

    @cached_property
    def covariance(self) -> Tensor:
        """(..., 6, 6) covariance of the pose in the coordinates (omega, v) of `se3`; optimistic like `information`.

        Zero along held directions and along those that the data leaves undetermined, which stay at `initial`:
        `observability` tells how many, and `information` is zero there.
        """
        chart = chart_for(self._settings, self._linearized[0].frame)
        if self._settings.solver == "accumulate":
            chart = Chart()
        eigenvalues, vectors = torch.linalg.eigh(self._mean_information(chart))
        determined = eigenvalues >= self._settings.limits.undetermined_below
        inverse = torch.where(determined, 1 / torch.where(determined, eigenvalues, 1.0), 0.0)
        root = self._to_callers_coordinates(chart)[:, :, list(chart.free)] @ (vectors * inverse.sqrt()[:, None])
        return self._shaped(root @ root.mT / self._precision[:, None, None])

    @cached_property
    def _linearized(self) -> tuple[Quadratic, Tensor]:
        """The summary of the problem at the pose, and the local pose."""
        T = self._T.detach()
        with torch.no_grad():
            quadratic = summarize(self._problem.linearized(T))
        return quadratic, quadratic.frame.to_local(T)

    @cached_property
    def _sigma(self) -> Tensor:
        quadratic, _ = self._linearized
        pairs = self._problem.linearized(self._T.detach())
        rows = 1 if pairs.metric is not None and pairs.metric.ndim == 3 else 3
        weights = self._problem.weights() if pairs.weights is None else pairs.weights
        freedom = (
            rows * ((weights > 0) & (self._problem.weights() > 0)).sum(-1) - self.observability.determined.flatten()
        )
        # Point by point: the summary's rounding would be taken for noise.
        still = Problem(pairs, fixed_metric, () if pairs.metric is None else (pairs.metric,))
        variance = still.energy(self._T.detach()) / freedom.clamp_min(1)
        size = quadratic.frame.scale.flatten()
        rounding = torch.finfo(self._problem.pairs.source.dtype).eps * (
            size + quadratic.frame.source_center.norm(dim=(1, 2))
        )
        return torch.where(freedom > 0, torch.maximum(variance.sqrt(), rounding), size)

    @property
    def _precision(self) -> Tensor:
        """(B,) factor from the mean information in local units to the caller's over sigma^2."""
        return self._linearized[0].unit().flatten() / self._sigma.square()

    def _mean_information(self, chart: Chart) -> Tensor:
        """(B, F, F) mean ``J H J^T`` in local units along a chart."""
        quadratic, T = self._linearized
        return derivatives(quadratic.matrix, chart, T).gauss_newton

    def _to_callers_coordinates(self, chart: Chart) -> Tensor:
        """(B, 6, 6) from steps (a, b) of a chart, in local units, to (omega, v) about the caller's target origin."""
        return _about(*self._pivot(chart))

    def _pivot(self, chart: Chart) -> tuple[Tensor, Tensor]:
        """(B, 3, 1) what a chart's steps turn about, and (B, 1, 1) the unit of their shifts."""
        quadratic, T = self._linearized
        frame = quadratic.frame
        return frame.target_center + frame.scale * (T[:, :, 3:] - chart.arm(T)), frame.scale

    @property
    def _dtype(self) -> torch.dtype:
        return self.T_target_source.dtype

    def _shaped(self, flat: Tensor) -> Tensor:
        shaped = flat.reshape((*self._problem.pairs.batch_shape, *flat.shape[1:]))
        return shaped.to(self._dtype) if shaped.is_floating_point() else shaped


def _about(pivot: Tensor, scale: Tensor) -> Tensor:
    """(B, 6, 6) from steps (a, b) about pivots (B, 3, 1), in units (B, 1, 1), to (omega, v) about the origin."""
    # a x (p - pivot) + scale b = a x p + v, so v = pivot x a + scale b.
    matrix = torch.eye(6, dtype=pivot.dtype, device=pivot.device).repeat(len(pivot), 1, 1)
    matrix[:, 3:, :3] = so3.hat(pivot[:, :, 0])
    matrix[:, 3:, 3:] *= scale
    return matrix


def alignment_at(
    T_target_source: Tensor,
    source: Tensor,
    target: Tensor,
    metric: Tensor | None = None,
    weights: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    converged: Tensor | None = None,
    iterations: int = 1,
    rounds: tuple[Round, ...] = (),
) -> Alignment:
    """The `Alignment` of poses that come from elsewhere, seen through the pairs that they bring together.

    Args:
        T_target_source: (B, 4, 4) poses, with whatever gradient they have.
        source: (B, N, 3).
        target: (B, N, 3); row i is the partner of source row i.
        metric: None for point-to-point, (B, N, 3) normals, or (B, N, 3, 3) matrices.
        weights: (B, N).
        mask: (B, N) bool, true where a pair is present.
        converged: (B,) bool; true where it is not given.
        iterations: number of steps that were made.
        rounds: of the method.
    """
    batch = T_target_source.shape[:1]
    pairs = Pairs(source, target, None, weights, mask, batch)
    problem = Problem(pairs, fixed_metric, () if metric is None else (metric,))
    if converged is None:
        converged = torch.ones(batch, dtype=torch.bool, device=T_target_source.device)
    steps = torch.full(batch, iterations, dtype=torch.int64, device=T_target_source.device)
    T = T_target_source[:, :3].double()
    return Alignment(T_target_source, converged, steps, T, problem, Settings(), rounds)
