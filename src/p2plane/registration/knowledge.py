"""What is known before the search: a first pose, how sure it is, and directions that must not change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from p2plane.geometry import so3
from p2plane.registration.scan import Scan
from p2plane.solve.inputs import Array, free_directions

WITHIN_SIGMAS = 3.5
SAME = 0.5  # cosine between a motion that pairs do not see and one that is held, above which they are the same
LIKELY = 22.5  # squared Mahalanobis distance that one of a thousand draws in six dimensions exceeds


@dataclass(frozen=True)
class Knowledge:
    """What is known, between the centred scans."""

    T_initial: Tensor
    """(4, 4) the user's pose, or the identity between the frames that came."""
    covariance: Tensor | None = None
    """(6, 6) of the initial pose, in the coordinates (omega, v); None where it is but a guess."""
    hold: tuple[str, ...] = ()
    """Directions that keep the value they have in the initial pose."""

    def rotations(self, count: int) -> Tensor:
        """(K, 3, 3) the rotations that may be right, as densely as so many over all of SO(3) are."""
        R_initial = self.T_initial[:3, :3]
        free = [axis for axis in range(3) if f"r{'xyz'[axis]}" not in self.hold]
        if not free:
            return R_initial[None]
        if len(free) == 1:
            steps = math.ceil(2 * count ** (1 / 3))
            angles = torch.arange(steps, dtype=torch.float64) * (2 * math.pi / steps)
            return so3.about_axis(free[0], angles) @ R_initial
        rotations = so3.spread(count)
        if self.covariance is None:
            return rotations
        sigma = float(torch.linalg.eigvalsh(self.covariance[:3, :3])[-1].sqrt())
        away = so3.log(rotations @ R_initial.mT).norm(dim=-1)
        return torch.cat([R_initial[None], rotations[away <= WITHIN_SIGMAS * sigma]])

    def allows(self, T: Tensor) -> bool:
        """Whether a pose (4, 4) is near enough to what is known."""
        if self.covariance is None:
            return True
        difference = left_difference(T, self.T_initial)
        return bool(difference @ torch.linalg.solve(self.covariance, difference) <= LIKELY)

    def combined(self, T: Tensor, information: Tensor) -> Tensor:
        """A pose (4, 4) that pairs lead to, with their information (6, 6), and the initial pose taken into account."""
        if self.covariance is None:
            return T
        prior = torch.linalg.inv(self.covariance)
        return left_step(T, torch.linalg.solve(information + prior, prior @ left_difference(self.T_initial, T)))

    def combined_information(self, information: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
        """(6, 6) information and covariance of that pose, from those of the pairs alone."""
        if self.covariance is None:
            return information, covariance
        both = information + torch.linalg.inv(self.covariance)
        return both, torch.linalg.inv(both)

    def leaves_open(self, unseen: Tensor, steps: Tensor, T: Tensor) -> int:
        """How many of the motions (D, 6) that pairs do not see are not held either.

        With a covariance none is: it says how far the initial pose may be off.

        Args:
            unseen: (D, 6) orthonormal rows.
            steps: (6, 6) from such motions to steps (omega, v) about the origin.
            T: (4, 4) where they start.
        """
        if self.covariance is not None:
            return 0
        if len(unseen) == 0 or not self.hold:
            return len(unseen)
        # What a step does to R and to t, which it turns as well.
        change = torch.eye(6, dtype=torch.float64)
        change[3:, :3] = -so3.hat(T[:3, 3])
        held = change[[each for each in range(6) if each not in free_directions(self.hold)]] @ steps
        basis = torch.linalg.qr(held.mT).Q  # (6, H)
        return len(unseen) - int((torch.linalg.svdvals(unseen @ basis) > SAME).sum())


def names_of(hold: Sequence[str]) -> tuple[str, ...]:
    """The directions that are held; one may come by its name alone."""
    free_directions(hold)  # refuses what cannot be held
    return (hold,) if isinstance(hold, str) else tuple(hold)


def may_be_centered(hold: Sequence[str]) -> bool:
    """Whether what is held stays held when scans are moved to their middles: t changes by ``R c`` then.

    Held components of t are those between the given frames. Turning about one axis does not change R's row of that
    axis, and not turning changes none.
    """
    turns = [axis for axis in "xyz" if f"r{axis}" not in hold]
    shifts = [axis for axis in "xyz" if f"t{axis}" in hold]
    return not turns or not shifts or (len(turns) == 1 and shifts == turns)


def knowledge_from(
    initial: Array | None, covariance: Array | None, hold: tuple[str, ...], source: Scan, target: Scan
) -> Knowledge:
    """The arguments of `register` as they concern the centred scans."""
    if initial is None and covariance is not None:
        raise ValueError("initial_covariance must go with initial, got no initial pose")
    T = torch.eye(4, dtype=torch.float64) if initial is None else _pose(initial)
    T_initial = target.T_local_given @ T @ source.T_given_local
    if covariance is None:
        return Knowledge(T_initial, None, hold)
    matrix = about_origin(-target.center)
    return Knowledge(T_initial, matrix @ _covariance(covariance) @ matrix.mT, hold)


def about_origin(center: Tensor) -> Tensor:
    """(6, 6) from steps (omega, v) about a centre (3,) to those about the origin."""
    # omega x (p - center) + v = omega x p + (v + center x omega)
    matrix = torch.eye(6, dtype=torch.float64)
    matrix[3:, :3] = so3.hat(center)
    return matrix


def left_difference(T: Tensor, T_from: Tensor) -> Tensor:
    """(6,) the step (omega, v) from one pose to another: ``R = exp(omega) R_from, t = exp(omega) t_from + v``."""
    turn = T[:3, :3] @ T_from[:3, :3].mT
    return torch.cat([so3.log(turn), T[:3, 3] - turn @ T_from[:3, 3]])


def left_step(T_from: Tensor, step: Tensor) -> Tensor:
    """(4, 4) the pose that a step (6,) leads to."""
    T, turn = T_from.clone(), so3.exp(step[:3])
    T[:3] = turn @ T_from[:3]
    T[:3, 3] += step[3:]
    return T


def _pose(initial: Array) -> Tensor:
    T = torch.as_tensor(initial).detach().cpu().double()
    if T.shape != (4, 4) or not T.isfinite().all():
        raise ValueError(f"initial must be a finite (4, 4) matrix, got shape {tuple(T.shape)}")
    R = T[:3, :3]
    is_rotation = torch.allclose(R @ R.mT, torch.eye(3, dtype=R.dtype), atol=1e-3) and bool(torch.det(R) > 0)
    if not is_rotation or not torch.equal(T[3], T.new_tensor([0, 0, 0, 1])):
        raise ValueError(f"initial must be a rigid motion with the last row 0 0 0 1, got {T.tolist()}")
    return torch.cat([torch.cat([so3.project(R), T[:3, 3:]], dim=1), T[3:]])


def _covariance(covariance: Array) -> Tensor:
    matrix = torch.as_tensor(covariance).detach().cpu().double()
    if matrix.shape != (6, 6) or not matrix.isfinite().all():
        raise ValueError(f"initial_covariance must be a finite (6, 6) matrix, got shape {tuple(matrix.shape)}")
    if not torch.allclose(matrix, matrix.mT) or torch.linalg.eigvalsh(matrix)[0] <= 0:
        raise ValueError("initial_covariance must be symmetric and positive definite, got one that is not")
    return matrix
