"""What methods have in common that look at one pair of clouds at a time."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from p2plane.classical.clouds import CloudPairs, read_clouds, with_normals
from p2plane.classical.scales import Surface
from p2plane.geometry import se3
from p2plane.geometry.neighbors import knn
from p2plane.solve.alignment import Alignment
from p2plane.solve.implicit import Settings
from p2plane.solve.inputs import Array, Pairs
from p2plane.solve.problem import Problem, fixed_metric
from p2plane.solve.robust import Trimmed


class Found(NamedTuple):
    """What a method has to say about one pair."""

    T_target_source: Tensor  # (4, 4)
    converged: bool = True
    iterations: int = 1


class PairwiseMethod:
    """A method that looks at one pair at a time; called like a network, or with one pair of clouds (N, 3), (M, 3).

    A subclass says how many points it needs, whether it looks at normals, and does its work in `find`. Its poses carry
    no gradient.
    """

    fewest_points = 1
    """With fewer points in a cloud the answer is the identity, not converged."""
    needs_normals = (False, False)
    """Whether the normals of the source and of the target are looked at."""
    trim = 0.0
    """The share of the source points, the farthest, that the energy of the answer leaves out."""

    def find(self, source: Surface, target: Surface, generator: torch.Generator | None) -> Found:
        """The pose of one pair."""
        raise NotImplementedError

    @torch.no_grad()
    def __call__(
        self,
        source: Array,
        target: Array,
        source_normals: Array | None = None,
        target_normals: Array | None = None,
        *,
        source_mask: Array | None = None,
        target_mask: Array | None = None,
        generator: torch.Generator | None = None,
    ) -> Alignment:
        """The motion of the source onto the target.

        Args:
            source: (N, 3) or (..., N, 3).
            target: (M, 3) or (..., M, 3).
            source_normals: (..., N, 3) of unit length; estimated where they are needed and missing.
            target_normals: (..., M, 3) likewise.
            source_mask: (..., N) bool, true where a point is present; what stands elsewhere does not matter.
            target_mask: (..., M) bool.
            generator: of whatever is drawn at random.

        Returns:
            An `Alignment` that sees the pairs of nearest points at the pose.
        """
        clouds = read_clouds(
            source, target, source_normals, target_normals, source_mask, target_mask, differentiable=False
        )
        found, estimated = [], False
        for pair in clouds.pairs:
            if min(len(surface.points) for surface in pair) < self.fewest_points:
                found.append(Found(torch.eye(4), converged=False, iterations=0))
                continue
            sides = [with_normals(each, needed) for each, needed in zip(pair, self.needs_normals, strict=True)]
            estimated = estimated or any(was_estimated for _, was_estimated in sides)
            found.append(self.find(sides[0][0], sides[1][0], generator))
        return _alignment(clouds, found, 1 - self.trim, estimated)


def _alignment(clouds: CloudPairs, found: list[Found], kept: float, estimated: bool) -> Alignment:
    """The alignment at the poses found, with the nearest target point as the partner of each source point."""
    device, shape = clouds.like.device, clouds.batch_shape
    T = torch.stack([each.T_target_source.to(device, torch.float64) for each in found])  # (B, 4, 4)
    sources = [source.points for source, _ in clouds.pairs]
    partners = [_partners(*pair, pose) for pair, pose in zip(clouds.pairs, T.to(clouds.like), strict=True)]
    weights = [
        Trimmed(kept).weight((se3.apply(pose, source) - partner).square().sum(-1)[None], _all_present(source))[0]
        for pose, source, partner in zip(T.to(clouds.like), sources, partners, strict=True)
    ]
    mask = _padded([_all_present(source)[0] for source in sources])
    pairs = Pairs(_padded(sources), _padded(partners), None, _padded(weights), mask, shape)
    return Alignment(
        T.to(clouds.like).reshape(*shape, 4, 4),
        torch.tensor([each.converged for each in found], device=device).reshape(shape),
        torch.tensor([each.iterations for each in found], device=device).reshape(shape),
        T[:, :3],
        Problem(pairs, fixed_metric, ()),
        Settings(),
        normals_estimated=estimated,
    )


def _partners(source: Surface, target: Surface, T_target_source: Tensor) -> Tensor:
    """(N, 3) the target points nearest to the moved source; without any, the moved source itself."""
    moved = se3.apply(T_target_source, source.points)
    if len(target.points) == 0 or len(moved) == 0:
        return moved
    return target.points[knn(moved, target.points, 1).indices[:, 0]]


def _all_present(points: Tensor) -> Tensor:
    """(1, N) bool."""
    return torch.ones(1, len(points), dtype=torch.bool, device=points.device)


def _padded(rows: list[Tensor]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
