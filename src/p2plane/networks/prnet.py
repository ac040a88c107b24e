"""PRNet (Wang and Solomon, NeurIPS 2019): key points, hard matches and several rounds; point head or plane head."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from p2plane.geometry import se3
from p2plane.matching.hard import hard_match
from p2plane.matching.keypoints import strongest, take
from p2plane.networks.dgcnn import DynamicDGCNN, Statistics
from p2plane.networks.door import Clouds, RegistrationNetwork
from p2plane.networks.head import HeadConfig, pose_from_match
from p2plane.networks.transformer import Look, Transformer
from p2plane.solve.alignment import Alignment, Round


@dataclass(frozen=True)
class PRNetConfig:
    """Settings of `PRNet`; the defaults are the published ones."""

    head: HeadConfig = field(default_factory=HeadConfig)
    normal_features: bool = False
    """Whether normals go into the features, as the paper's plane head wants it."""
    train_rounds: int = 3
    """2 for the paper's plane head."""
    test_rounds: int = 3
    """6 for the paper's plane head."""
    keypoints: int = 512
    """Points of each cloud that are matched; all where there are fewer."""
    sample_in_training: bool = True
    """Whether matches are drawn at random in training (Gumbel noise), or the most likely ones taken."""
    sample_in_evaluation: bool = False
    """The same in evaluation, where the published program draws too."""
    neighbors: int = 20
    widths: tuple[int, ...] = (64, 64, 128, 256)
    """Of the layers on edges."""
    feature_dim: int = 512
    heads: int = 4
    """Of the transformer's attention."""
    hidden: int = 1024
    """Width inside the transformer's feed-forward steps."""
    temperature_hidden: int = 128
    """Width of the temperature network."""
    temperature_factor: float = 100.0
    """The temperature is at most this, and at least its inverse."""

    def __post_init__(self) -> None:
        for name in ("train_rounds", "test_rounds", "keypoints"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.temperature_factor >= 1:
            raise ValueError(f"temperature_factor must be at least 1, got {self.temperature_factor}")


class PRNet(RegistrationNetwork):
    """In each round the source is moved, key points are chosen and matched one to one, and the pose is found anew.

    As published, key points are those with the largest features, the logits are ``f_x . f_y / sqrt(C)``, a row of the
    match is one-hot forward and soft backward, and the gradient flows from round to round through the moved source. The
    paper's extension changes three things, which are switched separately: normals in the features (and the source's
    turn with it), the head, and two rounds to train and six to test.

    The target stays where it is. So its features are found once, and in training its statistics are remembered in every
    round, as if they were found again.
    """

    def __init__(self, config: PRNetConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or PRNetConfig()
        in_features = 6 if config.normal_features else 3
        self.emb_nn = DynamicDGCNN(in_features, config.widths, config.feature_dim, config.neighbors, slope=0.2)
        self.attention = Transformer(config.feature_dim, config.heads, config.hidden, slope=0.2)
        self.temp_net = TemperatureNet(config.feature_dim, config.temperature_hidden, config.temperature_factor)

    def needs_normals(self) -> tuple[bool, bool]:
        """Of both clouds where they are in the features or in the head, as both directions are solved."""
        needed = self.config.normal_features or self.config.head.needs_normals
        return needed, needed

    def register(self, clouds: Clouds, generator: torch.Generator | None) -> Alignment:
        """As many rounds as the settings say."""
        target = self._seen(clouds.target, clouds.target_normals, clouds.target_mask)
        rounds: list[Round] = []
        for _ in range(self.config.train_rounds if self.training else self.config.test_rounds):
            T_moved_source = rounds[-1].T_target_source if rounds else None
            alignment, one = self._round(clouds, target, T_moved_source, generator)
            rounds.append(one)
        return replace(alignment, rounds=tuple(rounds))

    def _round(
        self, clouds: Clouds, target: _Seen, T_moved_source: Tensor | None, generator: torch.Generator | None
    ) -> tuple[Alignment, Round]:
        points, normals = clouds.source, clouds.source_normals
        if T_moved_source is not None:
            points = se3.apply(T_moved_source, points)
            normals = None if normals is None else se3.rotate(T_moved_source, normals)
        source = self._seen(points, normals, clouds.source_mask)
        for seen in (source, target):
            self.emb_nn.remember(seen.statistics)
        keys_source = self._keypoints(source, self.attention.compare(source.look, target.look))
        keys_target = self._keypoints(target, self.attention.compare(target.look, source.look))
        temperature, disparity = self.temp_net(keys_source.mean, keys_target.mean)
        match, match_reverse = self._matches(keys_source, keys_target, temperature, generator)
        # The pose is found for the source as it came, from where it is: moved points would give the step, and composing
        # the same pose.
        at_first = take(clouds.source, keys_source.rows)
        alignment, matched = pose_from_match(
            self.config.head,
            match,
            at_first,
            keys_target.points,
            keys_target.normals,
            mask=keys_source.mask,
            initial=T_moved_source,
        )
        reverse, _ = pose_from_match(
            self.config.head,
            match_reverse,
            keys_target.points,
            keys_source.points,
            keys_source.normals,
            mask=keys_target.mask,
        )
        T_target_source = alignment.T_target_source
        T_step = T_target_source if T_moved_source is None else T_target_source @ se3.inverse(T_moved_source)
        extras = {
            "temperature": temperature,
            "disparity": disparity,
            "T_step": T_step,
            "T_step_reverse": reverse.T_target_source,
            "source_rows": keys_source.rows,
            "target_rows": keys_target.rows,
        }
        return alignment, Round(T_target_source, at_first, matched, match=match, extras=extras)

    def _seen(self, points: Tensor, normals: Tensor | None, mask: Tensor | None) -> _Seen:
        features, statistics = self.emb_nn.embed(points, normals if self.config.normal_features else None, mask)
        return _Seen(points, normals, mask, features, self.attention.look(features, mask), statistics)

    def _keypoints(self, seen: _Seen, compared: Tensor) -> _Keypoints:
        features = compared.add_(seen.features)
        rows = strongest(features, self.config.keypoints, seen.mask)
        normals = None if seen.normals is None else take(seen.normals, rows)
        mask = None if seen.mask is None else take(seen.mask, rows)
        return _Keypoints(rows, take(seen.points, rows), normals, take(features, rows), mask)

    def _matches(
        self, source: _Keypoints, target: _Keypoints, temperature: Tensor, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """(B, K, L) and (B, L, K): from the source to the target, and back."""
        sample = self.config.sample_in_training if self.training else self.config.sample_in_evaluation
        logits = source.features @ target.features.mT / self.config.feature_dim**0.5
        there, back = (
            values if mask is None else values.masked_fill(~mask[:, None], float("-inf"))
            for values, mask in ((logits, target.mask), (logits.mT, source.mask))
        )
        shaped = temperature[..., None]
        return (
            hard_match(there, shaped, sample=sample, generator=generator),
            hard_match(back, shaped, sample=sample, generator=generator),
        )


class TemperatureNet(nn.Module):
    """How soft the gradient of the hard match is, from how much the mean features of the two clouds differ."""

    def __init__(self, width: int = 512, hidden: int = 128, factor: float = 100.0) -> None:
        super().__init__()
        self.factor = factor
        layers: list[nn.Module] = []
        for before in (width, hidden, hidden):
            layers += [nn.Linear(before, hidden), nn.BatchNorm1d(hidden), nn.ReLU()]
        self.nn = nn.Sequential(*layers, nn.Linear(hidden, 1), nn.ReLU())

    def forward(self, of_source: Tensor, of_target: Tensor) -> tuple[Tensor, Tensor]:
        """(B, 1) temperature and (B, C) disparity, of mean features (B, C).

        In training a batch needs two pairs, for BatchNorm. Gradient: both arguments.
        """
        disparity = (of_source - of_target).abs()
        return self.nn(disparity).clamp(1 / self.factor, self.factor), disparity


class _Seen(NamedTuple):
    """A cloud and its features, before it is compared."""

    points: Tensor  # (B, N, 3)
    normals: Tensor | None
    mask: Tensor | None
    features: Tensor  # (B, N, C)
    look: Look
    statistics: list[Statistics]


class _Keypoints(NamedTuple):
    rows: Tensor  # (B, K)
    points: Tensor  # (B, K, 3)
    normals: Tensor | None
    features: Tensor  # (B, K, C)
    mask: Tensor | None

    @property
    def mean(self) -> Tensor:
        """(B, C) of the features of the points that are present."""
        if self.mask is None:
            return self.features.mean(1)
        present = self.mask[..., None]
        return (self.features * present).sum(1) / present.sum(1)
