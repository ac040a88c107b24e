"""What is known before the search: a first pose, how sure it is, and directions that must not change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from p2plane.geometry import so3
from p2plane.registration.check import Visibility
from p2plane.registration.scan import Scan
from p2plane.solve.inputs import Array, free_directions

WITHIN_SIGMAS = 3.5
NOTICED = 0.5  # what a motion must change of what is held, in radians and scales, to be no longer open
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
        free = self._free_axes
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

    def with_held(self, T: Tensor, middle: Tensor) -> Tensor:
        """(4, 4) the pose near another one that has what is held as the initial pose has it.

        It keeps a place (3,) in the middle of the source where the other pose brings it, but for shifts that are held.
        """
        if not self.hold:
            return T
        R_initial, near = self.T_initial[:3, :3], T.clone()
        turn, free = T[:3, :3] @ R_initial.mT, self._free_axes
        if len(free) < 3:
            turn = _nearest_turn(free[0], turn) if free else torch.eye(3, dtype=T.dtype)
            near[:3, :3] = turn @ R_initial
            near[:3, 3] += (T[:3, :3] - near[:3, :3]) @ middle
        shifts = ["xyz".index(name[1]) for name in self.hold if name[0] == "t"]
        near[shifts, 3] = self.T_initial[shifts, 3]
        return near

    def combined(self, T: Tensor, information: Tensor) -> Tensor:
        """A pose (4, 4) that pairs lead to, with their information (6, 6), and the initial pose taken into account."""
        if self.covariance is None:
            return T
        prior, free = torch.linalg.inv(self.covariance), self._free_steps(T)
        pull = free.mT @ prior @ left_difference(self.T_initial, T)
        return left_step(T, free @ torch.linalg.solve(free.mT @ (information + prior) @ free, pull))

    def combined_information(self, T: Tensor, information: Tensor, sight: Visibility) -> tuple[Tensor, Tensor]:
        """(6, 6) information and covariance of that pose, the latter zero along what is held.

        Without an initial covariance it is zero along what the pairs do not see, too: the pose stays there.
        """
        free = sight.steps @ torch.linalg.qr(sight.motions @ self._free_steps(T)).Q  # (6, F) of like length
        if self.covariance is None:
            inverse = torch.linalg.pinv(free.mT @ information @ free, hermitian=True, rtol=1e-9)
        else:
            information = information + torch.linalg.inv(self.covariance)
            inverse = torch.linalg.inv(free.mT @ information @ free)
        return information, free @ inverse @ free.mT

    def still_open(self, sight: Visibility, T: Tensor) -> Tensor:
        """(D, 6) the motions, as the sight has them, that pairs do not see and that change nothing that is held."""
        unseen = sight.open
        if len(unseen) == 0 or not self.hold:
            return unseen
        change = _change(T)
        change[3:] /= sight.scale
        held = change[[each for each in range(6) if each not in free_directions(self.hold)]] @ sight.steps
        left, strengths, _ = torch.linalg.svd(unseen @ held.mT)
        return left[:, int((strengths > NOTICED).sum()) :].mT @ unseen

    @property
    def _free_axes(self) -> list[int]:
        """About which R may turn: none, one or all."""
        return [axis for axis in range(3) if f"r{'xyz'[axis]}" not in self.hold]

    def _free_steps(self, T: Tensor) -> Tensor:
        """(6, F) steps (omega, v) at a pose (4, 4) that change nothing that is held."""
        inverse = 2 * torch.eye(6, dtype=T.dtype) - _change(T)  # of 1 + N, as N squared is zero
        return inverse[:, list(free_directions(self.hold))]


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


def _change(T: Tensor) -> Tensor:
    """(6, 6) from steps (omega, v) at a pose (4, 4) to what they do to R and to t, which they turn as well."""
    matrix = torch.eye(6, dtype=T.dtype)
    matrix[3:, :3] = -so3.hat(T[:3, 3])
    return matrix


def _nearest_turn(axis: int, R: Tensor) -> Tensor:
    """(3, 3) the turn about x, y or z that is nearest to a rotation (3, 3)."""
    one, other = (axis + 1) % 3, (axis + 2) % 3
    return so3.about_axis(axis, torch.atan2(R[other, one] - R[one, other], R[one, one] + R[other, other]))


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
