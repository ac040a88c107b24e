"""A Gauss-Newton step on the summary of a round's pairs, in NumPy for the sake of small clouds.

It is the first step of the search in `solve.minimize`. What is not plain, a long step or directions that the data
leaves open, is left to that search.
"""

from __future__ import annotations

import numpy as np

SHORT_STEP = 0.05  # radians and units of the radius, under which one step is as good as the minimum for a round
MOST_STEPS = 8
_IDENTITY = np.eye(6)


def descend(form: np.ndarray, T: np.ndarray, undetermined_below: float) -> np.ndarray | None:
    """(3, 4) the pose after steps down to a short one; None where that does not come soon, or a direction is open."""
    for _ in range(MOST_STEPS):
        step = gauss_newton_step(form, T, undetermined_below)
        if step is None:
            return None
        T_next = stepped(T, step)
        if np.abs(step).max() <= SHORT_STEP:
            return T_next
        if _energy(form, T_next) > _energy(form, T):
            return None
        T = T_next
    return None


def _energy(form: np.ndarray, T: np.ndarray) -> float:
    entries = np.append(T.ravel(), 1.0)
    return float(entries @ form @ entries)


def gauss_newton_step(form: np.ndarray, T: np.ndarray, undetermined_below: float) -> np.ndarray | None:
    """(6,) the step (a, b) at a pose (3, 4), about the origin of the source; None where a direction is open."""
    from scipy.linalg.lapack import dposv, dpotrf  # type: ignore[import-untyped]

    rows = _rows(T)
    tangents = rows[:6]
    products = tangents @ form
    matrix = products @ tangents.T
    # A factor exists if all eigenvalues are above the threshold.
    if dpotrf(matrix - undetermined_below * _IDENTITY)[1] != 0:
        return None
    return -dposv(matrix, products @ rows[6])[1]


def stepped(T: np.ndarray, step: np.ndarray) -> np.ndarray:
    """(3, 4) the pose after a step: Cayley's turn, as in `solve.tangent`, and a shift."""
    x, y, z = step[:3].tolist()
    skew = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    once = skew @ T[:, :3]
    T = T.copy()
    T[:, :3] += (once + skew @ once / 2) / (1 + (x * x + y * y + z * z) / 4)
    T[:, 3] += step[3:]
    return T


def _rows(T: np.ndarray) -> np.ndarray:
    """(7, 13) the changes of (T, 1) along the steps, and itself."""
    rows = np.zeros((7, 13))
    turns = rows[:3, :12].reshape(3, 3, 4)[:, :, :3]  # e_k x R
    x, y, z = T[:, :3]
    turns[0, 1], turns[0, 2] = -z, y
    turns[1, 0], turns[1, 2] = z, -x
    turns[2, 0], turns[2, 1] = -y, x
    rows[3, 3] = rows[4, 7] = rows[5, 11] = rows[6, 12] = 1
    rows[6, :12] = T.ravel()
    return rows
