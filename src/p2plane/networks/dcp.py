"""Deep Closest Point (Wang and Solomon, ICCV 2019), v1 and v2, with its point head or the paper's plane head."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from p2plane.matching.softmax import softmax
from p2plane.networks.dgcnn import StaticDGCNN
from p2plane.networks.door import Clouds, RegistrationNetwork
from p2plane.networks.head import HeadConfig, pose_from_match
from p2plane.networks.transformer import Transformer
from p2plane.solve.alignment import Alignment, Round
from p2plane.solve.inputs import one_of


@dataclass(frozen=True)
class DCPConfig:
    """Settings of `DCP`; the defaults are those of the published v2."""

    pointer: str = "transformer"
    """"identity" for v1, "transformer" for v2."""
    head: HeadConfig = field(default_factory=HeadConfig)
    normal_features: bool = False
    """Whether normals go into the features, as the paper's plane head wants it."""
    cycle: bool = False
    """Whether the motion of the target onto the source is found too, for the cycle term of the loss."""
    neighbors: int = 20
    widths: tuple[int, ...] = (64, 64, 128, 256)
    """Of the layers on edges."""
    feature_dim: int = 512
    heads: int = 4
    """Of the transformer's attention."""
    hidden: int = 1024
    """Width inside the transformer's feed-forward steps."""

    def __post_init__(self) -> None:
        one_of("pointer", self.pointer, ("identity", "transformer"))


class DCP(RegistrationNetwork):
    """Every source point is matched softly with all target points, once, and the pose follows in closed form.

    As published, the match is ``softmax(f_x . f_y / sqrt(C))``, and with the identity for a pointer the features are
    twice the embedding. The paper's extension changes two things, which are switched separately: normals go into the
    features (neighbour's point and normal, then the point's own), and the head minimises distances to planes.
    """

    def __init__(self, config: DCPConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or DCPConfig()
        in_features = 6 if config.normal_features else 3
        self.emb_nn = StaticDGCNN(in_features, config.widths, config.feature_dim, config.neighbors)
        self.pointer = None
        if config.pointer == "transformer":
            self.pointer = Transformer(config.feature_dim, config.heads, config.hidden)

    def needs_normals(self) -> tuple[bool, bool]:
        """Those of the features, and the target's for planes, or of both clouds where the reverse is found too."""
        in_features, in_head = self.config.normal_features, self.config.head.needs_normals
        return in_features or (in_head and self.config.cycle), in_features or in_head

    def register(self, clouds: Clouds, generator: torch.Generator | None) -> Alignment:
        """One round."""
        of_source, of_target = self._features(clouds)
        logits = of_source @ of_target.mT / self.config.feature_dim**0.5
        match = _shares(logits, clouds.target_mask)
        alignment, matched = pose_from_match(
            self.config.head, match, clouds.source, clouds.target, clouds.target_normals, mask=clouds.source_mask
        )
        extras = {}
        if self.config.cycle:
            extras["T_source_target"] = self._reverse(clouds, logits)
        one = Round(alignment.T_target_source, clouds.source, matched, match=match, extras=extras)
        return replace(alignment, rounds=(one,))

    def _features(self, clouds: Clouds) -> tuple[Tensor, Tensor]:
        """(B, N, C) and (B, M, C)."""
        embedded = []
        for side in ("source", "target"):
            normals = getattr(clouds, f"{side}_normals") if self.config.normal_features else None
            embedded.append(self.emb_nn(getattr(clouds, side), normals, getattr(clouds, f"{side}_mask")))
        source, target = embedded
        if self.pointer is None:
            return 2 * source, 2 * target
        of_source, of_target = (
            self.pointer.look(source, clouds.source_mask),
            self.pointer.look(target, clouds.target_mask),
        )
        seen = self.pointer.compare(of_source, of_target), self.pointer.compare(of_target, of_source)
        return seen[0].add_(source), seen[1].add_(target)

    def _reverse(self, clouds: Clouds, logits: Tensor) -> Tensor:
        match = _shares(logits.mT, clouds.source_mask)
        return pose_from_match(
            self.config.head, match, clouds.target, clouds.source, clouds.source_normals, mask=clouds.target_mask
        )[0].T_target_source


def _shares(logits: Tensor, mask: Tensor | None) -> Tensor:
    """The softmax over the last dimension, where the mask (B, M) says that there is a point."""
    if mask is not None:
        logits = logits.masked_fill(~mask[:, None], float("-inf"))
    return softmax(logits)
