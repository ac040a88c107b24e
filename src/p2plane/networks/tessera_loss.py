"""What Tessera is trained with: the match, told what is right, and the pose of every round."""

from __future__ import annotations

import torch
from torch import Tensor

from p2plane.geometry import se3
from p2plane.solve.alignment import Alignment, Round


def tessera_loss(
    alignment: Alignment,
    source: Tensor,
    T_true: Tensor,
    source_mask: Tensor | None = None,
    target_mask: Tensor | None = None,
    *,
    match_weight: float = 1.0,
    near_weight: float = 0.0,
    pose_weight: float = 0.3,
    precision: float = 0.05,
) -> Tensor:
    """() the sum over rounds of a match loss and a pose loss.

    Args:
        alignment: of `Tessera`, of B pairs.
        source: (B, N, 3).
        T_true: (B, 4, 4) the true ``T_target_source``.
        source_mask: (B, N) bool, true where a point is present.
        target_mask: (B, M) bool likewise.
        match_weight: of the match of tokens in the first round.
        near_weight: of the matches in later rounds, as far as the pose before was near the true one.
        pose_weight: of the pose in each round.
        precision: in units of the source's radius; the pose loss is the mean over pairs of ``log(1 + e / precision)``
            for the mean distance e that points are off, so that a pair that is lost does not drown the others.

    Gradient: poses and matches of the alignment.
    """
    size = _radius(source, source_mask)
    off = [_distance_off(each.T_target_source, T_true, source, source_mask) / size for each in alignment.rounds]
    total = pose_weight * torch.stack([torch.log1p(each / precision).mean() for each in off]).sum()
    for number, each in enumerate(alignment.rounds):
        if number == 0:
            total = total + match_weight * match_loss(each, T_true).mean()
        elif near_weight > 0:
            near = torch.exp(-(off[number - 1].detach() / (4 * precision)).square())
            total = total + near_weight * (near * match_loss(each, T_true, source_mask, target_mask)).mean()
    return total


def match_loss(
    one: Round, T_true: Tensor, source_mask: Tensor | None = None, target_mask: Tensor | None = None
) -> Tensor:
    """(B,) mean negative logarithm of what rows and columns of the match put in the right place.

    A pair counts by ``w_ij = exp(-d_ij^2 / (2 s^2))``, where d is its distance under the true motion and s the mean
    distance of a target point from the nearest other one. A point whose nearest partner is at most 2 s away should put
    its share there; a point that has none within 3 s should leave it to the slack; others do not count.

    Absent points have neither a share nor slack to speak of: a slack of one, which costs nothing.
    """
    assert one.match is not None
    with torch.no_grad():
        partners = one.extras["partners"]
        distances = torch.cdist(se3.apply(T_true, one.source), partners)  # (B, K, L)
        spacing = _nearest_other(partners)[:, None, None]
        right = torch.exp(-(distances / spacing).square() / 2)
        has_row, has_column = (distances.amin(dim) / spacing[:, 0] for dim in (2, 1))
    losses = []
    for dim, nearest, slack in ((2, has_row, one.extras["row_slack"]), (1, has_column, one.extras["column_slack"])):
        share = (one.match * right).sum(dim) / right.amax(dim).clamp_min(1e-6)
        inside, outside = nearest <= 2, nearest > 3
        value = torch.where(inside, -(share + 1e-6).log(), -(slack + 1e-6).log())
        counts = (inside | outside) & (slack < 1)
        losses.append((value * counts).sum(-1) / counts.sum(-1).clamp_min(1))
    return losses[0] + losses[1]


def _nearest_other(points: Tensor) -> Tensor:
    """(B,) the mean distance of a point from the nearest other."""
    apart = torch.cdist(points, points)
    alone = torch.eye(points.shape[1], dtype=torch.bool, device=points.device)
    nearest = apart.masked_fill(alone | (apart == 0), float("inf")).amin(-1)
    return torch.where(nearest.isfinite(), nearest, 0.0).mean(-1).clamp_min(1e-9)


def _radius(points: Tensor, mask: Tensor | None) -> Tensor:
    """(B,) root mean square distance from the centroid."""
    present = points.new_ones(points.shape[:2]) if mask is None else mask.to(points.dtype)
    share = present / present.sum(1, keepdim=True)
    centered = points - (points * share[..., None]).sum(1, keepdim=True)
    return (centered.square().sum(-1) * share).sum(-1).sqrt().clamp_min(1e-9)


def _distance_off(T: Tensor, T_true: Tensor, points: Tensor, mask: Tensor | None) -> Tensor:
    """(B,) mean distance between points moved by one and by the other."""
    distances = torch.linalg.vector_norm(se3.apply(T, points) - se3.apply(T_true, points), dim=-1)
    if mask is None:
        return distances.mean(-1)
    return (distances * mask).sum(-1) / mask.sum(-1)
