"""PointNetLK Revisited: Lucas-Kanade on one feature vector of a whole cloud, with its Jacobian in closed form.

Li, X. et al., PointNetLK revisited (CVPR 2021), without voxels, as the authors do for single objects. Parameters have
the published names.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from p2plane.geometry import se3, so3
from p2plane.geometry.neighbors import gather, knn
from p2plane.networks.door import Clouds, RegistrationNetwork
from p2plane.networks.rri import mean_point
from p2plane.solve.alignment import Alignment, Round, alignment_at

_EPSILON = 1e-5  # of BatchNorm


@dataclass(frozen=True)
class PointNetLKConfig:
    """Settings of `PointNetLK`; the defaults are the published ones."""

    widths: tuple[int, int, int] = (64, 128, 1024)
    """Of the three layers; the last is the length of the feature."""
    train_rounds: int = 10
    """The most iterations in training."""
    test_rounds: int = 20
    tolerance: float = 1e-7
    """Stop when no twist of the batch is longer."""
    train_points: int | None = 100
    """In training, only so many random points of each cloud are looked at; None for all."""

    def __post_init__(self) -> None:
        if len(self.widths) != 3 or min(self.widths) < 1:
            raise ValueError(f"widths must be three positive numbers, got {self.widths}")
        for name in ("train_rounds", "test_rounds", "train_points"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")


class PointNetLK(RegistrationNetwork):
    """Moves the source until its feature is that of the target (inverse compositional).

    The target is the template: its feature and the Jacobian J of that are computed once, and each iteration solves
    ``J twist = feature(moved source) - feature(target)``. Clouds are centred first.

    A round holds, as pairs, the points that make the feature: row c of source and matched are the points with the
    largest value of channel c. Its extras are ``residual`` (B, C), the difference of the features before the step, and
    ``twist`` (B, 6). The pairs of the `Alignment` are the source and the nearest target points after the motion.

    In training, as published: BatchNorm's statistics are renewed by one pass over random points of each cloud, and all
    else uses the running ones, with other random points, the same rows in both clouds. No gradient flows through J.
    """

    def __init__(self, config: PointNetLKConfig = PointNetLKConfig()) -> None:
        super().__init__()
        self.config = config
        self.ptnet = PointNet(*config.widths)

    def register(self, clouds: Clouds, generator: torch.Generator | None) -> Alignment:
        source = _Cloud.centered(clouds.source, clouds.source_mask)
        target = _Cloud.centered(clouds.target, clouds.target_mask)
        if self.training:
            for cloud in self._subsets(target, source, generator):
                self.ptnet.renew_statistics(cloud.points, cloud.mask)
            chosen_target, chosen_source = self._subsets(target, source, generator)
            rounds, converged = self._iterate(chosen_source, chosen_target)
        else:
            rounds, converged = self._iterate(source, target)
        T_target_source = rounds[-1].T_target_source
        matched = _nearest(T_target_source, clouds)
        return alignment_at(
            T_target_source,
            clouds.source,
            matched,
            mask=clouds.source_mask,
            converged=converged,
            iterations=len(rounds),
            rounds=tuple(rounds),
        )

    def _subsets(self, target: _Cloud, source: _Cloud, generator: torch.Generator | None) -> tuple[_Cloud, _Cloud]:
        """Random points of both clouds, the same rows where the clouds have equally many."""
        count = self.config.train_points
        if count is None:
            return target, source
        like, rows = source.points, max(source.points.shape[1], target.points.shape[1])
        keys = torch.rand(len(like), rows, generator=generator, dtype=like.dtype, device=like.device)
        return target.largest(keys, count), source.largest(keys, count)

    def _iterate(self, source: _Cloud, target: _Cloud) -> tuple[list[Round], Tensor]:
        """The rounds, and (B,) whether the last step was short."""
        limit = self.config.train_rounds if self.training else self.config.test_rounds
        feature_target, target_rows = self.ptnet(target.points, target.mask)
        jacobian = self.ptnet.jacobian(target.points, target_rows)  # (B, C, 6)
        pseudo_inverse, solvable = _pseudo_inverse(jacobian)
        matched = target.rows(target_rows)
        T = torch.eye(4, dtype=source.points.dtype, device=source.points.device).repeat(len(source.points), 1, 1)
        rounds: list[Round] = []
        for _ in range(limit):
            feature, rows = self.ptnet(se3.apply(T, source.points), source.mask)
            residual = feature - feature_target
            twist = (pseudo_inverse @ residual[..., None]).squeeze(-1)
            lengths = twist.detach().norm(dim=-1)
            small = bool((lengths < self.config.tolerance).all())
            if not small:
                # More than a full turn: that pair has got lost, and stays where it is.
                sane = twist.detach()[:, :3].norm(dim=-1, keepdim=True) < 2 * torch.pi
                T = group_exp(twist.where(sane, 0.0)) @ T
            T_target_source = _uncentered(T, source.mean, target.mean)
            extras = {"residual": residual, "twist": twist}
            rounds.append(Round(T_target_source, source.rows(rows), matched, extras=extras))
            if small:
                break
        rounding = 100 * torch.finfo(lengths.dtype).eps
        return rounds, solvable & (lengths < max(self.config.tolerance, rounding))


class PointNet(nn.Module):
    """Three layers for each point, and the largest value of each channel over the cloud."""

    def __init__(self, first: int, second: int, third: int) -> None:
        super().__init__()
        self.mlp1, self.mlp2, self.mlp3 = _layer(3, first), _layer(first, second), _layer(second, third)

    def forward(self, points: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(B, C) the feature with BatchNorm's running statistics, and (B, C) the rows of the points that make it.

        Args:
            points: (B, N, 3).
            mask: (B, N) bool, true where a point is present.

        Gradient: points and weights.
        """
        values = points
        for weight, bias in self._folded():
            values = (values @ weight.mT + bias).relu()
        if mask is not None:
            values = values.masked_fill(~mask[..., None], -float("inf"))
        feature, rows = values.max(dim=1)
        return feature, rows

    @torch.no_grad()  # gradient stops here: J is a constant of the search, as published
    def jacobian(self, points: Tensor, rows: Tensor) -> Tensor:
        """(B, C, 6) derivative of the feature of ``exp(-twist) points`` at zero.

        A channel depends on one point alone, so only these are looked at.

        Args:
            points: (B, N, 3).
            rows: (B, C) of the points that make the feature, from `forward`.

        Gradient: none.
        """
        chosen = gather(points, rows[..., None]).squeeze(2)  # (B, C, 3)
        (W1, b1), (W2, b2), (W3, b3) = self._folded()
        first = (chosen @ W1.mT + b1).relu()
        second = (first @ W2.mT + b2).relu()
        alive = (second * W3).sum(-1) + b3 > 0  # (B, C) channel c at its own point
        # Back from each channel to its point, through the ReLUs that are open there.
        by_point = ((W3 * alive[..., None] * (second > 0)) @ W2 * (first > 0)) @ W1  # (B, C, 3)
        # d exp(-twist) p = p x omega - v, and g . (p x omega) = (g x p) . omega.
        return torch.cat([torch.linalg.cross(by_point, chosen), -by_point], dim=-1)

    @torch.no_grad()
    def renew_statistics(self, points: Tensor, mask: Tensor | None) -> None:
        """One pass in which BatchNorm sees the present points and updates its running statistics."""
        rows = points.flatten(0, 1) if mask is None else points[mask]
        self.mlp3(self.mlp2(self.mlp1(rows)))

    def _folded(self) -> list[tuple[Tensor, Tensor]]:
        """Weight and bias of each layer with BatchNorm, as it is in evaluation, multiplied in."""
        return [_fold(layer) for layer in (self.mlp1, self.mlp2, self.mlp3)]


def group_exp(twist: Tensor) -> Tensor:
    """(B, 4, 4) exponential of SE(3) of twists (B, 6), rotation first: the translation is bent, unlike in `se3.exp`.

    Gradient: twist.
    """
    generator = torch.cat([so3.hat(twist[..., :3]), twist[..., 3:, None]], dim=-1)
    return torch.linalg.matrix_exp(nn.functional.pad(generator, (0, 0, 0, 1)))


@dataclass(frozen=True)
class _Cloud:
    """Centred points (B, N, 3), where they are present, and the mean (B, 1, 3) that was taken away."""

    points: Tensor
    mask: Tensor | None
    mean: Tensor

    @classmethod
    def centered(cls, points: Tensor, mask: Tensor | None) -> _Cloud:
        mean = mean_point(points, mask)
        return cls(points - mean, mask, mean)

    def largest(self, keys: Tensor, count: int) -> _Cloud:
        """The points with the largest keys (B, at least N), the present ones first; all where there are fewer."""
        keys = keys[:, : self.points.shape[1]]
        if self.mask is not None:
            keys = keys.masked_fill(~self.mask, -1.0)
        chosen = keys.topk(min(count, keys.shape[1]), dim=1).indices
        mask = None if self.mask is None else self.mask.gather(1, chosen)
        return _Cloud(self.points.gather(1, chosen[..., None].expand(-1, -1, 3)), mask, self.mean)

    def rows(self, rows: Tensor) -> Tensor:
        """(B, C, 3) points as they came, by rows (B, C)."""
        return self.points.gather(1, rows[..., None].expand(-1, -1, 3)) + self.mean


def _layer(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs, eps=_EPSILON), nn.ReLU())


def _fold(layer: nn.Sequential) -> tuple[Tensor, Tensor]:
    weight, bias, gain, shift = (layer.get_parameter(name) for name in ("0.weight", "0.bias", "1.weight", "1.bias"))
    mean, variance = layer.get_buffer("1.running_mean"), layer.get_buffer("1.running_var")
    scale = gain * (variance + _EPSILON).rsqrt()
    # The mean is copied: a later pass may renew it before the backward of this one.
    return weight * scale[:, None], (bias - mean.clone()) * scale + shift


def _pseudo_inverse(jacobian: Tensor) -> tuple[Tensor, Tensor]:
    """(B, 6, C) ``(J^T J)^-1 J^T``, zero where J does not have full rank, and (B,) bool where it has."""
    J = jacobian.double()
    hessian = J.mT @ J
    factor, info = torch.linalg.cholesky_ex(hessian)
    pivots = factor.diagonal(dim1=-2, dim2=-1) / hessian.diagonal(dim1=-2, dim2=-1).sqrt()
    solvable = (info == 0) & (pivots.amin(-1) > torch.finfo(jacobian.dtype).eps)  # NaN, of 0 / 0, is not
    factor = torch.where(solvable[:, None, None], factor, torch.eye(6, dtype=J.dtype, device=J.device))
    inverse = torch.cholesky_solve(J.mT, factor) * solvable[:, None, None]
    return inverse.to(jacobian.dtype), solvable


def _uncentered(T: Tensor, source_mean: Tensor, target_mean: Tensor) -> Tensor:
    """(B, 4, 4) the motion of clouds whose centred ones move by T: ``R (x - mean_x) + t + mean_y``."""
    R, t = T[:, :3, :3], T[:, :3, 3]
    return se3.from_rotation_translation(R, t + (target_mean - source_mean @ R.mT).squeeze(1))


@torch.no_grad()  # gradient stops here: neighbours are discrete, and the pose does not come from them
def _nearest(T_target_source: Tensor, clouds: Clouds) -> Tensor:
    """(B, N, 3) the target points that are nearest to the moved source."""
    moved = se3.apply(T_target_source, clouds.source)
    found = knn(moved, clouds.target, 1, mask=clouds.target_mask, query_mask=clouds.source_mask)
    return gather(clouds.target, found.indices).squeeze(2)
