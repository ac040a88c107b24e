"""The match of points that a pose has already brought near: by where they are, and by what they look like."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from p2plane.geometry import se3

_ROWS, _COLUMNS = (0, 0, 0, 1, 1, 2), (0, 1, 2, 1, 2, 2)  # the six entries of a symmetric matrix
_TIMES = (1.0, 2.0, 2.0, 1.0, 2.0, 1.0)  # how often each of the six stands in it
_UNIT = 10.0  # Adam moves each parameter by about the learning rate; these few have farther to go than weights have


class Described(NamedTuple):
    """Points with normals and what they look like."""

    points: Tensor  # (B, N, 3)
    normals: Tensor  # (B, N, 3)
    descriptors: Tensor  # (B, N, D) of unit length
    matchable: Tensor  # (B, N) the larger, the likelier there is a partner


class NearMatch(nn.Module):
    """Affinities of all source points, moved by a pose, with all target points.

    ``s f . g + e (o_i + o_j) - (x - y)^T Q (x - y) / h^2 + c (n . m)^2 + alpha``, where ``Q = a I + b m m^T`` is
    stricter along the normal m of the target than across it, h is the spacing of the points, f and g are descriptors
    and o how matchable a point is. The six numbers are learned for each round; rounds beyond the last learned one are
    like that one.

    All of it is one matrix product, as each term is bilinear in monomials of the two points.
    """

    def __init__(self) -> None:
        super().__init__()
        # Distances that count as one, across and along the normal, become smaller from round to round. These first
        # guesses are a soft ICP already.
        distances = torch.tensor([[1.5, 1.0], [0.7, 0.3], [0.6, 0.2]])
        scales = torch.tensor([[10.0, 0.3, 8.0]]).repeat(len(distances), 1)
        self.log_precision = nn.Parameter(-2 * distances.log() / _UNIT)  # a, b
        self.log_scale = nn.Parameter(scales.log() / _UNIT)  # s, e, c
        self.offset = nn.Parameter(torch.full((len(distances),), -8.0 / _UNIT))  # alpha

    def numbers(self, number: int) -> tuple[Tensor, ...]:
        """The numbers a, b, s, e, c and alpha of a round, from 0."""
        number = min(number, len(self.offset) - 1)
        precision, scale = (_UNIT * self.log_precision[number]).exp(), (_UNIT * self.log_scale[number]).exp()
        return *precision.unbind(), *scale.unbind(), _UNIT * self.offset[number]

    def forward(
        self, source: Described, target: Described, T_target_source: Tensor, spacing: Tensor, number: int
    ) -> Tensor:
        """(B, N, M) logarithms of affinities.

        Args:
            source: where it is at first.
            target: where it stays.
            T_target_source: (B, 4, 4) the pose before.
            spacing: (B,) mean distance of neighbours.
            number: of the round, from 0.
        """
        a, b, s, e, c, alpha = self.numbers(number)
        x, n = se3.apply(T_target_source, source.points), se3.rotate(T_target_source, source.normals)
        one = torch.ones_like(x[..., :1])
        ours = [source.descriptors, _squares(x), x, one, _squares(n), e * source.matchable[..., None]]

        y, m = target.points, target.normals
        unit = spacing.square()[:, None, None]
        planes = m[..., _ROWS] * m[..., _COLUMNS]  # (B, M, 6)
        identity = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0, 1.0], dtype=y.dtype, device=y.device)
        metric = (b * planes + a * identity) / unit
        pulled = (b * (m * y).sum(-1, keepdim=True) * m + a * y) / unit  # Q y / h^2
        constant = alpha + e * target.matchable[..., None] - (pulled * y).sum(-1, keepdim=True)
        theirs = [s * target.descriptors, -metric, 2 * pulled, constant, c * planes, torch.ones_like(constant)]
        return torch.cat(ours, dim=-1) @ torch.cat(theirs, dim=-1).mT


def _squares(vectors: Tensor) -> Tensor:
    """(..., 6) so that the product with the six entries of a symmetric Q is ``v^T Q v``."""
    return vectors[..., _ROWS] * vectors[..., _COLUMNS] * vectors.new_tensor(_TIMES)
