"""DeepGMR: two clouds become Gaussian mixtures whose components correspond, and these align in closed form.

Yuan, W. et al., DeepGMR: learning latent Gaussian mixture models for registration (ECCV 2020). Written from the paper
and from a description of what the published program computes; parameters have the published names.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from p2plane.geometry import se3
from p2plane.networks.door import Clouds, RegistrationNetwork
from p2plane.networks.rri import ORIENTATIONS, mean_point, rri_features
from p2plane.solve.alignment import Alignment, Round, alignment_at
from p2plane.solve.distances import point_to_point
from p2plane.solve.inputs import one_of


@dataclass(frozen=True)
class DeepGMRConfig:
    """Settings of `DeepGMR`; the defaults are the published ones."""

    features: str = "rri"
    """What the network sees of a point: "rri", which no motion changes, or its centred coordinates "xyz"."""
    neighbors: int = 20
    """Neighbours of a point in its RRI features."""
    orientation: str = "kernel"
    """Which way RRI angles turn, see `rri_features`: "kernel" for the authors' weights, presumably; or "numpy"."""
    components: int = 16
    """Of a mixture."""
    encoder_widths: tuple[int, ...] = (64, 128, 256, 1024)
    decoder_widths: tuple[int, ...] = (512, 256, 128)
    tnet: bool = False
    """Whether coordinates are turned by a small network first; with "xyz" only."""

    def __post_init__(self) -> None:
        one_of("features", self.features, ("rri", "xyz"))
        one_of("orientation", self.orientation, ORIENTATIONS)
        for name in ("neighbors", "components"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("encoder_widths", "decoder_widths"):
            if not getattr(self, name) or min(getattr(self, name)) < 1:
                raise ValueError(f"{name} must hold positive widths, got {getattr(self, name)}")
        if self.tnet and self.features != "xyz":
            raise ValueError(f"tnet must go with features='xyz', got {self.features!r}: no motion changes those")


@dataclass(frozen=True)
class Mixture:
    """J isotropic Gaussians for each cloud."""

    pi: Tensor  # (B, J) shares of the points
    mu: Tensor  # (B, J, 3) means
    variance: Tensor  # (B, J) summed over the three axes, as published


class DeepGMR(RegistrationNetwork):
    """Registers through corresponding Gaussian mixtures.

    A round holds the components as pairs and, in its extras, of both sides: ``gamma_source`` (B, N, J) the shares of
    the components in each point, ``pi_source`` (B, J), ``mu_source`` (B, J, 3), ``sigma_source`` (B, J), the same with
    ``_target``; and ``T_reverse`` (B, 4, 4), the motion of the target onto the source, solved on its own.

    In training, BatchNorm takes its statistics from each side on its own, as published.
    """

    def __init__(self, config: DeepGMRConfig = DeepGMRConfig()) -> None:
        super().__init__()
        self.config = config
        self.backbone = _Backbone(config)

    def register(self, clouds: Clouds, generator: torch.Generator | None) -> Alignment:
        gamma_source = self._shares(clouds.source, clouds.source_mask)
        gamma_target = self._shares(clouds.target, clouds.target_mask)
        source = fit_mixture(clouds.source, gamma_source)
        target = fit_mixture(clouds.target, gamma_target)
        T_target_source, T_source_target = register_mixtures(source, target), register_mixtures(target, source)
        extras = {"gamma_source": gamma_source, "gamma_target": gamma_target, "T_reverse": T_source_target}
        for side, mixture in (("source", source), ("target", target)):
            extras |= {f"pi_{side}": mixture.pi, f"mu_{side}": mixture.mu, f"sigma_{side}": mixture.variance.sqrt()}
        last = Round(T_target_source, source.mu, target.mu, source.pi, extras=extras)
        return alignment_at(T_target_source, source.mu, target.mu, weights=source.pi, rounds=(last,))

    def _shares(self, points: Tensor, mask: Tensor | None) -> Tensor:
        """(B, N, J) shares of the components in each point, zero where it is absent."""
        if self.config.features == "rri":
            inputs = rri_features(points, self.config.neighbors, mask, orientation=self.config.orientation)
        else:
            inputs = points - mean_point(points, mask)
        gamma = self.backbone(inputs, mask).softmax(-1)
        return _unpacked(gamma, mask, points.shape[:2], absent=0.0)


def fit_mixture(points: Tensor, gamma: Tensor) -> Mixture:
    """The mixture of a cloud whose points belong to the components by shares.

    ``pi_j`` is the mean share, ``mu_j`` and ``variance_j`` the mean and the mean squared distance from it under the
    shares of component j. A component without any share is at the origin and weighs nothing.

    Args:
        points: (B, N, 3).
        gamma: (B, N, J), rows that sum to one, zero where a point is absent.

    Gradient: both arguments.
    """
    total = gamma.sum(1)  # (B, J)
    shares = gamma / total.clamp_min(torch.finfo(gamma.dtype).tiny)[:, None]
    mu = shares.mT @ points
    squares = (points[:, :, None] - mu[:, None]).square().sum(-1)  # (B, N, J)
    return Mixture(total / total.sum(-1, keepdim=True), mu, (shares * squares).sum(1))


def register_mixtures(source: Mixture, target: Mixture) -> Tensor:
    """(B, 4, 4) the motion of one mixture onto another whose components are in the same order.

    R is the rotation nearest to ``sum_j pi_j / variance_j (mu_j^target - c^target) (mu_j^source - c^source)^T``, and
    ``t = c^target - R c^source``; the shares are those of the source, in both centroids c, the variances those of the
    target, all as published. It does not quite minimise one energy then, unless the variances are equal.

    Gradient: both mixtures, without the derivative of a singular value decomposition.
    """
    pi = source.pi.where(target.pi > 0, 0.0)  # a component that the target lacks has no partner
    pi = pi / pi.sum(-1, keepdim=True).clamp_min(torch.finfo(pi.dtype).tiny)
    weights = pi * _relative_precisions(target.variance)
    c_source, c_target = (pi[:, None] @ mixture.mu for mixture in (source, target))  # (B, 1, 3)
    x, y = source.mu - c_source, target.mu - c_target
    # With each pair goes its mirror image: their weighted centroids are zero, and only the rotation is left to find.
    x, y, weights = torch.cat([x, -x], dim=1), torch.cat([y, -y], dim=1), torch.cat([weights, weights], dim=1)
    R = point_to_point(x, y, weights).R
    return se3.from_rotation_translation(R, (c_target - c_source @ R.mT).squeeze(1))


def _relative_precisions(variance: Tensor) -> Tensor:
    """(B, J) inverse variances in units of the mean variance, at most a million.

    A component of a single point has none, and must not outweigh all others.
    """
    unit = variance.detach().mean(-1, keepdim=True)
    unit = torch.where(unit > 0, unit, 1.0)
    return unit / torch.maximum(variance, 1e-6 * unit)


class _Backbone(nn.Module):
    """PointNet for segmentation: each point's features beside the largest of the cloud's."""

    def __init__(self, config: DeepGMRConfig) -> None:
        super().__init__()
        inputs = 3 if config.features == "xyz" else 4 * config.neighbors
        widths = config.encoder_widths
        self.tnet = _TNet() if config.tnet else None
        self.encoder = _layers(inputs, *widths)
        self.decoder = _layers(2 * widths[-1], *config.decoder_widths)
        self.decoder.append(nn.Linear(config.decoder_widths[-1], config.components))

    def forward(self, inputs: Tensor, mask: Tensor | None) -> Tensor:
        """(P, J) logits of the present points from what is known of each, (B, N, C); absent points take no part."""
        shape = inputs.shape[:2]
        if self.tnet is not None:
            inputs = inputs @ self.tnet(inputs, mask).mT
        features = self.encoder(_packed(inputs, mask))  # (P, C)
        largest = _unpacked(features, mask, shape, absent=-float("inf")).amax(1)  # (B, C)
        # The same as a layer on (features, largest) side by side, but the cloud's half is computed once for a cloud.
        own, common = self.decoder.get_parameter("0.0.weight").chunk(2, dim=1)
        of_cloud = (largest @ common.mT)[:, None].expand(-1, shape[1], -1)
        layers = list(self.decoder)
        _, *after_it = layers[0].children()
        return nn.Sequential(*after_it, *layers[1:])(features @ own.mT + _packed(of_cloud, mask))


class _TNet(nn.Module):
    """A rotation for each cloud, from its points."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = _layers(3, 64, 128, 256)
        self.decoder = _layers(256, 128, 64)
        self.decoder.append(nn.Linear(64, 6))

    def forward(self, points: Tensor, mask: Tensor | None) -> Tensor:
        """(B, 3, 3) from the points (B, N, 3)."""
        features = self.encoder(_packed(points, mask))
        largest = _unpacked(features, mask, points.shape[:2], absent=-float("inf")).amax(1)
        first, second = self.decoder(largest).chunk(2, dim=-1)
        first = nn.functional.normalize(first, dim=-1)
        second = nn.functional.normalize(second - (first * second).sum(-1, keepdim=True) * first, dim=-1)
        return torch.stack([first, second, torch.linalg.cross(first, second)], dim=-1)


def _layers(*widths: int) -> nn.Sequential:
    """Linear, BatchNorm, ReLU, over and over, on rows of present points."""
    return nn.Sequential(
        *(
            nn.Sequential(nn.Linear(before, after, bias=False), nn.BatchNorm1d(after), nn.ReLU())
            for before, after in pairwise(widths)
        )
    )


def _packed(values: Tensor, mask: Tensor | None) -> Tensor:
    """(P, C) rows of the present points of all clouds, from (B, N, C): what BatchNorm may see."""
    return values.flatten(0, 1) if mask is None else values[mask]


def _unpacked(rows: Tensor, mask: Tensor | None, shape: torch.Size, absent: float) -> Tensor:
    """(B, N, C) from the rows (P, C) of the present points."""
    if mask is None:
        return rows.unflatten(0, shape)
    return rows.new_full((*shape, rows.shape[-1]), absent).masked_scatter(mask[..., None], rows)
