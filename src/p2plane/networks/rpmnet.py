"""RPMNet: learned point features, a match with room for outliers, and a pose, round after round.

Yew, Z. J. and Lee, G. H., RPM-Net: robust point matching using learned features (CVPR 2020). Written from the paper and
from a description of what the published program computes; parameters have the published names. The head by planes is
that of the paper on deep point-to-plane registration.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from p2plane.geometry import se3
from p2plane.matching.hard import Picks
from p2plane.matching.keypoints import take
from p2plane.matching.sinkhorn import sinkhorn_match_
from p2plane.networks.door import Clouds, RegistrationNetwork
from p2plane.networks.group_norm import (
    folded_map,
    maps_and_norms,
    moments_of,
    normalized_layer,
    normalized_layers,
    scale_and_shift,
)
from p2plane.networks.head import HeadConfig, pose_from_match
from p2plane.networks.maxima import largest
from p2plane.networks.ppf import CHANNELS, Edges, edges_within
from p2plane.networks.ppf_layers import hidden_moments, pooled_at_once, pooled_layer
from p2plane.solve.alignment import Alignment, Round
from p2plane.solve.distances import point_to_point
from p2plane.solve.inputs import one_of

_SMALL = 1e-5  # added to sums of weights, as published


@dataclass(frozen=True)
class RPMNetConfig:
    """Settings of `RPMNet`; the defaults are the published ones."""

    head: HeadConfig = field(default_factory=HeadConfig)
    features: tuple[str, ...] = ("ppf", "dxyz", "xyz")
    """What the network sees of a neighbour: the point pair feature, its offset, and where the centre is."""
    feature_dim: int = 96
    """Channels of a feature, a multiple of 8; hidden layers have as many or twice as many."""
    parameter_dim: int = 64
    """Channels of the first layers of the network that finds alpha and beta, a multiple of 8; others have up to 16
    times as many."""
    neighbor_radius: float = 0.3
    neighbors: int = 64
    """The most neighbours of a point: the first ones in the order of the cloud."""
    sinkhorn_iterations: int = 5
    train_rounds: int = 2
    test_rounds: int = 5
    plane_match: str = "hard"
    """What the plane head makes of the match: "hard" picks one partner for each point, as in the paper; "soft" averages
    partners and their normal tensors, like the point head."""
    sample_in_training: bool = True
    """Whether the hard match of the plane head is drawn at random in training (Gumbel), or the likeliest is taken."""
    sample_in_evaluation: bool = False
    """The same in evaluation."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.features if name not in CHANNELS]
        if unknown or not self.features:
            raise ValueError(f"features must name some of {tuple(CHANNELS)}, got {self.features}")
        for name in ("feature_dim", "parameter_dim"):
            if getattr(self, name) < 8 or getattr(self, name) % 8 != 0:
                raise ValueError(f"{name} must be a multiple of 8, got {getattr(self, name)}")
        for name in ("neighbors", "sinkhorn_iterations", "train_rounds", "test_rounds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        one_of("plane_match", self.plane_match, ("hard", "soft"))
        if not 0 < self.neighbor_radius < float("inf"):
            raise ValueError(f"neighbor_radius must be positive and finite, got {self.neighbor_radius}")


class RPMNet(RegistrationNetwork):
    """Registers by features that are matched softly, with a share of every point that may stay without partner.

    Every round moves the source by the pose before, takes features and the parameters alpha and beta there, and matches
    by ``exp(-beta (|f - g|^2 - alpha))`` after Sinkhorn normalisation with slack. From the match follows the motion of
    the source as it was given, not a step. How, depends on the head:

    - "point", as published: the partner of a point is the mean of the target under its row of the match, its weight the
      sum of that row, the pose a weighted Procrustes.
    - "plane", the paper's: the partner is one target point with its plane, a Gumbel-hard choice by the logarithm of the
      match, drawn at random in training, the largest in evaluation. The weights are the same. With
      ``plane_match="soft"`` it is the mean point with the mean normal tensor instead, which trains faster.

    Nothing of it is invariant to rotations, as positions are among the raw channels; nor to the signs of normals, which
    the angles of point pair features see, whatever the head. The order of points matters where a point has more than
    `neighbors` others around it, as the first ones are taken.

    A round has the match (B, N, M) after Sinkhorn, weights that are the sums of its rows, and in its extras ``alpha``
    (B,), ``beta`` (B,), ``source_features`` (B, N, C) and ``target_features`` (B, M, C).
    """

    def __init__(self, config: RPMNetConfig = RPMNetConfig()) -> None:
        super().__init__()
        self.config = config
        self.weights_net = ParameterNetwork(config)
        self.feat_extractor = FeatureNetwork(config)

    def needs_normals(self) -> tuple[bool, bool]:
        """Both, for the point pair features."""
        seen = "ppf" in self.config.features
        return seen, seen or self.config.head.needs_normals

    def register(self, clouds: Clouds, generator: torch.Generator | None) -> Alignment:
        source_edges = self._edges(clouds.source, clouds.source_normals, clouds.source_mask)
        target_edges = self._edges(clouds.target, clouds.target_normals, clouds.target_mask)
        target_features = self.feat_extractor(target_edges, clouds.target_mask)  # the target never moves
        T_target_source = torch.eye(4, dtype=clouds.source.dtype, device=clouds.source.device)
        T_target_source = T_target_source.repeat(len(clouds.source), 1, 1)
        rounds: list[Round] = []
        for _ in range(self.config.train_rounds if self.training else self.config.test_rounds):
            # gradient stops here: a round takes the pose before as given
            T_target_source = T_target_source.detach()
            source_features = self.feat_extractor(source_edges, clouds.source_mask, T_target_source)
            beta, alpha = self.weights_net(replace(clouds, source=se3.apply(T_target_source, clouds.source)))
            match = self._match(clouds, source_features, target_features, beta, alpha)
            extras = {"alpha": alpha, "beta": beta}
            extras |= {"source_features": source_features, "target_features": target_features}
            alignment, last = self._pose(clouds, match, extras, generator)
            T_target_source = alignment.T_target_source
            rounds.append(last)
        return replace(alignment, rounds=tuple(rounds))

    def _edges(self, points: Tensor, normals: Tensor | None, mask: Tensor | None) -> Edges:
        config = self.config
        return edges_within(points, normals, config.neighbor_radius, config.neighbors, mask, config.features)

    def _match(
        self, clouds: Clouds, source_features: Tensor, target_features: Tensor, beta: Tensor, alpha: Tensor
    ) -> Tensor:
        """(B, N, M)."""
        # -beta (|f - g|^2 - alpha) with |f| = |g| = 1
        scale, offset = 2 * beta[:, None, None], (beta * (alpha - 2))[:, None, None]
        log_affinity = torch.baddbmm(offset, scale * source_features, target_features.mT)
        iterations, source_mask, target_mask = self.config.sinkhorn_iterations, clouds.source_mask, clouds.target_mask
        return sinkhorn_match_(log_affinity, iterations, source_mask=source_mask, target_mask=target_mask)

    def _pose(
        self, clouds: Clouds, match: Tensor, extras: dict[str, Tensor], generator: torch.Generator | None
    ) -> tuple[Alignment, Round]:
        weights = match.sum(-1)  # (B, N)
        if self.config.head.head == "point":
            matched = match @ clouds.target / (weights + _SMALL)[..., None]
            alignment = _short(point_to_point(clouds.source, matched, weights, clouds.source_mask), weights)
        else:
            pointers = self._pointers(match, weights, generator)
            alignment, matched = pose_from_match(
                self.config.head,
                pointers,
                clouds.source,
                clouds.target,
                clouds.target_normals,
                weights,
                clouds.source_mask,
            )
        return alignment, Round(alignment.T_target_source, clouds.source, matched, weights, match, extras)

    def _pointers(self, match: Tensor, weights: Tensor, generator: torch.Generator | None) -> Tensor | Picks:
        """From each source point to the target, for the plane head."""
        if self.config.plane_match == "soft":
            return match / (weights + _SMALL)[..., None]
        sample = self.config.sample_in_training if self.training else self.config.sample_in_evaluation
        return Picks(match, sample, generator)


class FeatureNetwork(nn.Module):
    """(B, N, C) features of unit length from the edges of clouds, the same network for both sides.

    Layers on edges, maximum over the edges of a point, layers on points. Each hidden layer is a linear map, GroupNorm
    over channels, edges and points of a cloud, and a ReLU. A GroupNorm is an affine map once its statistics are known.
    """

    def __init__(self, config: RPMNetConfig) -> None:
        super().__init__()
        raw, width = sum(CHANNELS[name] for name in set(config.features)), config.feature_dim
        self.prepool = normalized_layers(raw, (width, width, 2 * width), (8, 8, 8))
        self.postpool = normalized_layers(2 * width, (2 * width, width), (8, 8)).append(nn.Linear(width, width))

    def forward(self, edges: Edges, mask: Tensor | None, T_moved_cloud: Tensor | None = None) -> Tensor:
        """Features of the clouds, moved by transforms (B, 4, 4); a mask (B, N) as at the door."""
        (first, first_norm), (second, second_norm), (third, third_norm) = maps_and_norms(self.prepool)
        moments = edges.moments
        count = moments[:, -1, -1]
        if T_moved_cloud is None:
            first_map = folded_map(first, first_norm, moments)
        else:
            motion = edges.motion(T_moved_cloud.to(moments.dtype))
            first_map = folded_map(first, first_norm, motion @ moments @ motion.mT) @ motion
        first_map = first_map.to(edges.raw.dtype)
        # The last GroupNorm keeps or turns the order of values, so that it can wait until after the maximum.
        sign = torch.where(third_norm.weight.detach() < 0, -1, 1).to(first_map.dtype)
        third_map = sign[:, None] * third.weight
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            second_map = folded_map(second, second_norm, hidden_moments(edges, first_map).double()).to(first_map.dtype)
            maxima, sums, squares = pooled_layer(edges, first_map, second_map, third_map)
        else:
            maxima, sums, squares = pooled_at_once(edges, first_map, second, second_norm, third_map)
        scale, shift = scale_and_shift(third, third_norm, sign * sums, squares, count)
        values = torch.addcmul(shift[:, None], edges.to_clouds(sign * maxima), scale[:, None]).relu()  # (B, N, 2 C)
        for linear, norm in maps_and_norms(self.postpool):
            values = normalized_layer(linear, norm, values, mask)
        return F.normalize(self.postpool[-1](values), dim=-1)


class ParameterNetwork(nn.Module):
    """beta (B,) and alpha (B,) from the coordinates of both clouds, with a channel that tells one from the other."""

    def __init__(self, config: RPMNetConfig) -> None:
        super().__init__()
        width = config.parameter_dim
        self.prepool = normalized_layers(4, (width, width, width, 2 * width, 16 * width), (8, 8, 8, 8, 16))
        self.postpool = normalized_layers(16 * width, (8 * width, 4 * width), (16, 16)).append(nn.Linear(4 * width, 2))

    def forward(self, clouds: Clouds) -> tuple[Tensor, Tensor]:
        mask = _joined(clouds.source_mask, clouds.target_mask, clouds)
        values = torch.cat([F.pad(clouds.source, (0, 1)), F.pad(clouds.target, (0, 1), value=1.0)], dim=1)
        *layers, (last, last_norm) = maps_and_norms(self.prepool)
        for linear, norm in layers:
            values = normalized_layer(linear, norm, values, mask)
        folded = folded_map(last, last_norm, moments_of(values, mask)).to(values.dtype)  # (B, O, C + 1)
        # Only the highest points are looked at once more, with a gradient.
        maxima = (take(values, _highest(values, folded, mask)) * folded[..., :-1]).sum(-1) + folded[..., -1]
        logits = self.postpool(maxima.relu())
        beta, alpha = F.softplus(logits).unbind(-1)
        return beta, alpha


@torch.no_grad()
def _highest(values: Tensor, folded: Tensor, mask: Tensor | None) -> Tensor:
    """(B, O) which of the present points (B, N, C) comes out highest under maps (B, O, C + 1), in each channel."""
    rows = []
    for cloud, weight in enumerate(folded[..., :-1]):  # one by one, in memory that is used again
        heights = values[cloud] @ weight.mT  # (N, O)
        if mask is not None:
            heights.masked_fill_(~mask[cloud, :, None], float("-inf"))
        rows.append(largest(heights[None])[1])
    return torch.cat(rows)


def _joined(source_mask: Tensor | None, target_mask: Tensor | None, clouds: Clouds) -> Tensor | None:
    """(B, N + M) bool, or None where nothing is absent."""
    if source_mask is None and target_mask is None:
        return None
    masks = [
        torch.ones(points.shape[:2], dtype=torch.bool, device=points.device) if mask is None else mask
        for points, mask in ((clouds.source, source_mask), (clouds.target, target_mask))
    ]
    return torch.cat(masks, dim=1)


def _short(alignment: Alignment, weights: Tensor) -> Alignment:
    """The published pose, whose translation is a little short.

    The published Procrustes divides weights by their sum plus a small number, so that both centroids, and with them the
    translation, are shorter by the same factor. The rotation hardly notices: by the square of what is missing.
    """
    total = weights.sum(-1)
    factor = (total / (total + _SMALL))[:, None]
    T = alignment.T_target_source
    T = se3.from_rotation_translation(T[:, :3, :3], T[:, :3, 3] * factor)
    return replace(alignment, T_target_source=T, _T=T[:, :3].double())
