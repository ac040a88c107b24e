"""Tessera: this project's own network for partial clouds, from any start.

It keeps RPMNet's frame (Yew and Lee, CVPR 2020): features, a Sinkhorn match with room for points without partner, a
pose from the match, and again from there, round after round. What it changes:

- Features see lengths and folded angles only, so no rotation and no flipped normal changes them. They are computed
  once, for both clouds, and not in every round.
- A few hundred tokens, spread evenly, look around in their own cloud and at the other one by attention, in which the
  geometry of a pair counts as much as its features.
- The first round matches tokens, and believes pairs that keep each other's distances. Later rounds match all points, by
  features and by where the pose before has brought them.
- The pose comes from planes: W_i is the mean of n n^T under the match, plus a little of the identity; its gradient is
  exact.
- The match itself is supervised, see `tessera_loss`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from p2plane.geometry import se3
from p2plane.matching.consistency import consistency
from p2plane.matching.keypoints import take
from p2plane.matching.scaling import Match, scaled_sinkhorn
from p2plane.networks.door import Clouds, RegistrationNetwork
from p2plane.networks.frames import frames_of, mean_point_wise, side_by_side, spacing_of
from p2plane.networks.geometric_attention import Block
from p2plane.networks.head import HeadConfig, pose_from_match
from p2plane.networks.invariants import pair_invariants
from p2plane.networks.local_features import LocalFeatures, Tokens, surroundings
from p2plane.networks.near_match import Described, NearMatch
from p2plane.solve.alignment import Alignment, Round

MOST_BLOCKS = 100  # settings may come from a file that asks for any number


@dataclass(frozen=True)
class TesseraConfig:
    """Settings of `Tessera`."""

    head: HeadConfig = field(default_factory=lambda: HeadConfig("plane", point_share=0.02))
    tokens: int = 128
    """Points that stand for a cloud in attention and in the first round."""
    neighbors: int = 16
    """Of a point, in its own feature."""
    token_neighbors: int = 32
    """Of a token."""
    point_width: int = 64
    """Channels of a point's feature."""
    width: int = 128
    """Channels of a token's feature, a multiple of the heads."""
    blocks: int = 3
    heads: int = 4
    sinkhorn_iterations: int = 5
    train_rounds: int = 4
    test_rounds: int = 10
    start_noise: float = 0.05
    """In training, what a pose is disturbed by before the next round: radians, and parts of the clouds' radius."""
    consistent: bool = True
    """Whether the first round believes pairs that keep each other's distances; otherwise all pairs."""
    coordinates: bool = False
    """Whether features see coordinates as well, as RPMNet's do, so that rotations change them; to compare."""

    def __post_init__(self) -> None:
        names = ("tokens", "neighbors", "token_neighbors", "point_width", "width", "heads")
        for name in (*names, "sinkhorn_iterations", "train_rounds", "test_rounds"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.blocks <= MOST_BLOCKS:
            raise ValueError(f"blocks must be between 0 and {MOST_BLOCKS}, got {self.blocks}")
        if self.width % self.heads != 0:
            raise ValueError(f"width must be a multiple of heads, {self.heads}, got {self.width}")


class Tessera(RegistrationNetwork):
    """Registers by matching tokens that know their clouds, then points that are near.

    Scaling both clouds scales the answer, moving one moves it along; the order of points does not matter.

    A round has weights (B, K) and the match (B, K, L), of tokens in the first round and of all points later. In its
    extras are ``row_slack`` (B, K) and ``column_slack`` (B, L), what points leave without partner, and ``partners``
    (B, L, 3), the target points that the columns stand for.
    """

    def __init__(self, config: TesseraConfig = TesseraConfig()) -> None:
        super().__init__()
        self.config = config
        self.local = LocalFeatures(config.point_width, config.width, config.coordinates)
        self.blocks = nn.ModuleList(Block(config.width, config.heads) for _ in range(config.blocks))
        # How matchable a token is, and its descriptor.
        self.describe = nn.Sequential(nn.LayerNorm(config.width), nn.Linear(config.width, config.width + 1))
        self.log_sharpness = nn.Parameter(torch.tensor(3.0))
        self.threshold = nn.Parameter(torch.tensor(0.5))
        self.near = NearMatch()

    def needs_normals(self) -> tuple[bool, bool]:
        """Both, for the angles."""
        return True, True

    def register(self, clouds: Clouds, generator: torch.Generator | None) -> Alignment:
        clouds = _without_idle_masks(clouds)
        frames = frames_of(clouds)
        both = side_by_side(clouds, frames)
        config = self.config
        counts = {"neighbors": config.neighbors, "token_neighbors": config.token_neighbors, "tokens": config.tokens}
        around = surroundings(both.points, both.normals, both.mask, **counts, coordinates=config.coordinates)
        described = self.describe(self._looked_around(self.local(around), around.tokens))
        descriptors, matchable = F.normalize(described[..., 1:], dim=-1), described[..., 0]
        alignment, first = self._first_round(clouds, descriptors, matchable, around.tokens)
        rounds = [first]
        # A point looks like the token nearest to it.
        looks = (take(each, around.tokens.nearest) for each in (descriptors, matchable))
        source, target = _sides(clouds, both.points, both.normals, *looks)
        spacing = mean_point_wise(around.point_edges[..., 0].mean(-1), both.mask).chunk(2)[1].clamp_min(1e-6)
        for number in range((config.train_rounds if self.training else config.test_rounds) - 1):
            T_before = alignment.T_target_source.detach()  # gradient stops here: a round takes the pose before as given
            T_local = frames.to_local(T_before)
            if self.training and config.start_noise > 0:
                T_local = _disturbed(T_local, config.start_noise, generator)
            affinity = self.near(source, target, T_local, spacing, number)
            alignment, last = self._near_round(clouds, affinity, T_before)
            rounds.append(last)
        return replace(alignment, rounds=tuple(rounds))

    def _looked_around(self, features: Tensor, tokens: Tokens) -> Tensor:
        """(2 B, S, C) features of tokens after all blocks."""
        geometry = pair_invariants(tokens.points, tokens.normals)
        absent = None
        if tokens.mask is not None:
            absent = geometry.new_zeros(tokens.mask.shape).masked_fill(~tokens.mask, float("-inf"))[:, None, None]
        for block in self.blocks:
            features = block(features, geometry, absent)
        return features

    def _first_round(
        self, clouds: Clouds, descriptors: Tensor, matchable: Tensor, tokens: Tokens
    ) -> tuple[Alignment, Round]:
        """The pose from a match of tokens."""
        (f, g), (ours, theirs) = descriptors.chunk(2), matchable.chunk(2)
        affinity = self.log_sharpness.exp() * (f @ g.mT - self.threshold) + ours[..., None] + theirs[:, None]
        source_mask, target_mask = (None, None) if tokens.mask is None else tokens.mask.chunk(2)
        iterations = self.config.sinkhorn_iterations
        match = scaled_sinkhorn(affinity, iterations, source_mask=source_mask, target_mask=target_mask)
        believed, weights = self._believed(match, tokens.points, target_mask)
        of_source, of_target = tokens.indices.chunk(2)  # absent ones may stand in the padding
        source, target = _taken(clouds.source, of_source), _taken(clouds.target, of_target)
        normals = _taken(clouds.target_normals, of_target)
        return self._pose(match, believed, weights, source, target, normals, source_mask)

    def _believed(self, match: Match, points: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """(B, S, S) the match near each token's best partner, and (B, S) how much each pair is believed."""
        points, partners = points.chunk(2)
        if not self.config.consistent:
            return match.values, match.values.sum(-1)
        with torch.no_grad():  # gradient stops here: whom to believe is a choice
            apart = torch.cdist(partners, partners)
            spacing = spacing_of(apart, mask)
            best = match.values.argmax(-1)
            near = take(apart, best) < 2 * spacing[:, None, None]
        believed = match.values * near
        weights = believed.sum(-1)
        return believed, weights * consistency(points, take(partners, best), weights, 1.5 * spacing)

    def _near_round(self, clouds: Clouds, affinity: Tensor, initial: Tensor) -> tuple[Alignment, Round]:
        """The pose from a match of all points."""
        source_mask, target_mask = clouds.source_mask, clouds.target_mask
        match = scaled_sinkhorn(
            affinity, self.config.sinkhorn_iterations, source_mask=source_mask, target_mask=target_mask
        )
        weights, normals = match.values.sum(-1), clouds.target_normals
        return self._pose(match, match.values, weights, clouds.source, clouds.target, normals, source_mask, initial)

    def _pose(
        self,
        match: Match,
        believed: Tensor,
        weights: Tensor,
        source: Tensor,
        target: Tensor,
        normals: Tensor | None,
        mask: Tensor | None,
        initial: Tensor | None = None,
    ) -> tuple[Alignment, Round]:
        rows = believed / believed.sum(-1, keepdim=True).clamp_min(1e-12)
        alignment, matched = pose_from_match(self.config.head, rows, source, target, normals, weights, mask, initial)
        extras = {"row_slack": match.row_slack, "column_slack": match.column_slack, "partners": target}
        return alignment, Round(alignment.T_target_source, source, matched, weights, match.values, extras)


def _without_idle_masks(clouds: Clouds) -> Clouds:
    """None for masks that leave nothing out."""
    masks = {"source_mask": clouds.source_mask, "target_mask": clouds.target_mask}
    idle: dict[str, Any] = {name: None for name, mask in masks.items() if mask is not None and mask.all()}
    return replace(clouds, **idle)


def _sides(clouds: Clouds, *both: Tensor) -> list[Described]:
    """What belongs to the source and to the target, from tensors (2 B, P, ...) of both."""
    sizes = clouds.source.shape[1], clouds.target.shape[1]
    return [Described(*(each.chunk(2)[side][:, :size] for each in both)) for side, size in enumerate(sizes)]


def _taken(values: Tensor | None, rows: Tensor) -> Tensor:
    assert values is not None
    return take(values, rows.clamp_max(values.shape[1] - 1))


def _disturbed(T: Tensor, amount: float, generator: torch.Generator | None) -> Tensor:
    twist = torch.randn(len(T), 6, generator=generator, dtype=T.dtype, device=T.device)
    return se3.exp(amount * twist) @ T
