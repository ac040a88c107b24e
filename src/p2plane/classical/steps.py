"""A Gauss-Newton step on the summary of a round's pairs, in NumPy for the sake of small clouds.

It is the first step of the search in `solve.minimize`. What is not plain, a long step or directions that the data
leaves open, is left to that search.
"""

from __future__ import annotations

import numpy as np

SHORT_STEP = 0.05  # radians and units of the radius, under which one step is as good as the minimum for a round
MOST_STEPS = 8
_IDENTITY = np.eye(6)
_SKEW = np.cross(np.eye(3)[:, None], np.eye(3)).transpose(0, 2, 1)  # (3, 3, 3) the matrices of e_k x


def _tangents() -> np.ndarray:
    """(7, 13, 13) the maps from (T, 1) to its changes along the six steps, and to itself."""
    maps = np.zeros((7, 13, 13))
    for k in range(3):
        maps[k, :12, :12] = np.kron(_SKEW[k], np.diag([1, 1, 1, 0]))
        maps[3 + k, 4 * k + 3, 12] = 1
    maps[6] = np.eye(13)
    return maps


_TANGENTS = _tangents()


def descend(form: np.ndarray, T: np.ndarray, undetermined_below: float) -> np.ndarray | None:
    """(3, 4) the pose after steps down to a short one; None where that does not come soon, or a direction is open."""
    for _ in range(MOST_STEPS):
        step = gauss_newton_step(form, T, undetermined_below)
        if step is None:
            return None
        if np.abs(step).max() <= SHORT_STEP:
            return stepped(T, step)
        T_next = _downhill(form, T, step)
        if T_next is None:
            return None
        T = T_next
    return None


def _downhill(form: np.ndarray, T: np.ndarray, step: np.ndarray) -> np.ndarray | None:
    """(3, 4) the pose after a step, halved until it leads down; None where it never does."""
    energy = _energy(form, T)
    for _ in range(MOST_STEPS):
        T_next = stepped(T, step)
        if _energy(form, T_next) <= energy:
            return T_next
        step = step / 2
    return None


def _energy(form: np.ndarray, T: np.ndarray) -> float:
    entries = _entries(T)
    return float(entries @ form @ entries)


def _entries(T: np.ndarray) -> np.ndarray:
    """(13,) the entries of (3, 4) row by row, and 1."""
    entries = np.ones(13)
    entries[:12] = T.ravel()
    return entries


def gauss_newton_step(form: np.ndarray, T: np.ndarray, undetermined_below: float) -> np.ndarray | None:
    """(6,) the step (a, b) at a pose (3, 4), about the origin of the source; None where a direction is open."""
    from scipy.linalg.lapack import dposv, dpotrf  # type: ignore[import-untyped]

    rows = _TANGENTS @ _entries(T)  # (7, 13)
    products = rows[:6] @ form @ rows.T  # (6, 7)
    matrix, gradient = products[:, :6], products[:, 6]
    # A factor exists if all eigenvalues are above the threshold.
    if dpotrf(matrix - undetermined_below * _IDENTITY)[1] != 0:
        return None
    return -dposv(matrix, gradient)[1]


def stepped(T: np.ndarray, step: np.ndarray) -> np.ndarray:
    """(3, 4) the pose after a step: Cayley's turn, as in `solve.tangent`, and a shift."""
    turn, shift = step[:3], step[3:]
    skew = (turn @ _SKEW.reshape(3, 9)).reshape(3, 3)
    once = skew @ T[:, :3]
    T = T.copy()
    T[:, :3] += (once + skew @ once / 2) / (1 + turn @ turn / 4)
    T[:, 3] += shift
    return T
