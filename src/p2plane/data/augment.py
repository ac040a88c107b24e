"""The small acts that a pair is made of: draw points, move, crop, disturb.

Each is a function of arrays and of the random numbers it is handed. Those come from NumPy's `RandomState`, whose
numbers are promised to stay the same in every version; `numpy.random.Generator` makes no such promise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import RandomState

FAR = 500.0  # coordinates of PRNet's view point, where clouds have a radius of about one


class Side(NamedTuple):
    """One of the two clouds of a pair."""

    points: np.ndarray  # (N, 3)
    normals: np.ndarray  # (N, 3)

    def rows(self, which: np.ndarray | slice) -> Side:
        """The points that an index or a mask picks."""
        return Side(self.points[which], self.normals[which])

    def moved(self, T: np.ndarray) -> Side:
        """The cloud moved by a transform (4, 4), in the dtype that it has."""
        R = T[:3, :3].T.astype(self.points.dtype)
        return Side(self.points @ R + T[:3, 3].astype(R.dtype), self.normals @ R)


class Made(NamedTuple):
    """A pair in the making."""

    source: Side
    target: Side
    T_target_source: np.ndarray  # (4, 4)
    T_target_shape: np.ndarray  # (4, 4) where the whole shape lies


def random_motion(random: RandomState, max_angle_deg: float, max_translation: float) -> np.ndarray:
    """(4, 4) ``Rx Ry Rz`` with angles uniform on [0, max], and a translation uniform on [-max, max], as DCP draws them.

    Six draws: the angles about x, y and z, then the translation.
    """
    angles = random.uniform(size=3) * np.deg2rad(max_angle_deg)
    (sx, sy, sz), (cx, cy, cz) = np.sin(angles), np.cos(angles)
    T = np.eye(4)
    about_x = np.array([[1, 0, 0], [0, cx, -sx], [0, sx, cx]])
    about_y = np.array([[cy, 0, sy], [0, 1, 0], [-sy, 0, cy]])
    about_z = np.array([[cz, -sz, 0], [sz, cz, 0], [0, 0, 1]])
    T[:3, :3] = about_x @ about_y @ about_z
    T[:3, 3] = random.uniform(-max_translation, max_translation, size=3)
    return T


def any_motion(random: RandomState, max_translation: float) -> np.ndarray:
    """(4, 4) a rotation uniform over SO(3), and a translation as in `random_motion`."""
    from scipy.spatial.transform import Rotation

    T = np.eye(4)
    T[:3, :3] = Rotation.from_quat(random.standard_normal(4)).as_matrix()
    T[:3, 3] = random.uniform(-max_translation, max_translation, size=3)
    return T


def inverse(T: np.ndarray) -> np.ndarray:
    """(4, 4) the inverse of a rigid motion."""
    result = np.eye(4)
    result[:3, :3] = T[:3, :3].T
    result[:3, 3] = -T[:3, :3].T @ T[:3, 3]
    return result


def draw(random: RandomState, available: int, count: int) -> np.ndarray:
    """(count,) rows at random without repetition; all of them and some again where there are fewer than asked for."""
    if count <= available:
        return random.choice(available, count, replace=False)
    once = random.choice(available, available, replace=False)
    return np.concatenate([once, random.choice(available, count - available)])


def draw_two(random: RandomState, available: int, count: int, shared: float | None) -> tuple[np.ndarray, np.ndarray]:
    """(count,) rows for the source and for the target.

    Args:
        shared: the share of rows that both have. None, or what independent draws give anyway: they are independent,
            and have it on average. Otherwise they have exactly that, and both are smaller where rows are few.
    """
    if shared is None or abs(count / available - shared) < 0.01:
        return draw(random, available, count), draw(random, available, count)
    count = min(count, int(available / (2 - shared)))  # the rows of both must fit: 2 count - shared count
    common = round(shared * count)
    rows = random.permutation(available)
    source, rest = rows[:count], rows[count:]
    return source, np.concatenate([source[:common], rest[: count - common]])


def near_viewpoint(random: RandomState, *sides: Side, keep: int) -> tuple[Side, ...]:
    """The points of each cloud nearest to one far view point, nearest first: PRNet's partial scans.

    The point is about (500, 500, 500) or the opposite, the same for all clouds.
    """
    viewpoint = random.uniform(size=3) + FAR * random.choice([1, -1, 1, -1])
    kept = []
    for side in sides:
        distances = np.square(side.points.astype(np.float64) - viewpoint).sum(1)
        kept.append(side.rows(np.argsort(distances, kind="stable")[:keep]))
    return tuple(kept)


def half_space(random: RandomState, side: Side, share: float) -> Side:
    """The share of a cloud that lies farthest in a random direction: RPMNet's crop."""
    phi, cosine = random.uniform(0.0, 2 * np.pi), random.uniform(-1.0, 1.0)
    sine = np.sqrt(1 - cosine**2)
    direction = np.array([sine * np.cos(phi), sine * np.sin(phi), cosine])
    height = (side.points - side.points.mean(axis=0)) @ direction
    return side.rows(height > (0.0 if share == 0.5 else np.percentile(height, 100 * (1 - share))))


def jitter(random: RandomState, side: Side, sigma: float, clip: float) -> Side:
    """The cloud with Gaussian noise on its points; the normals stay."""
    noise = np.clip(sigma * random.standard_normal(side.points.shape), -clip, clip)
    return side._replace(points=side.points + noise.astype(side.points.dtype))


def shuffle(random: RandomState, side: Side) -> Side:
    """The cloud in another order."""
    return side.rows(random.permutation(len(side.points)))


def flip(random: RandomState, side: Side) -> Side:
    """The cloud with the sign of every normal drawn anew."""
    signs = random.randint(0, 2, size=(len(side.normals), 1)).astype(side.normals.dtype)
    return side._replace(normals=side.normals * (1 - 2 * signs))
