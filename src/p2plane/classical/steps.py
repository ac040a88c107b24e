"""A Gauss-Newton step on the summary of a round's pairs, in NumPy for the sake of small clouds.

The summary is that of `solve.quadratic`, ``E(T) = g~^T M g~`` with ``g~ = (T row by row, 1)``, and the step is the
first of its searches. What is not plain, a long step or directions that the data leaves open, goes to `solve.minimize`.
"""

from __future__ import annotations

import numpy as np

AT_ONCE = 1 << 13  # points whose rows stay in the cache
_IDENTITY = np.eye(6)


def form_of_planes(source: np.ndarray, target: np.ndarray, normals: np.ndarray) -> np.ndarray:
    """(13, 13) the sum of the squared rows ``(n (x) x~, -n.y)`` of pairs (3, N) with normals (3, N).

    A weight is a factor of the normal, its root.
    """
    count = source.shape[1]
    form = np.zeros((13, 13))
    rows = np.empty((13, min(count, AT_ONCE)))
    for start in range(0, count, AT_ONCE):
        x, y, n = (each[:, start : start + AT_ONCE] for each in (source, target, normals))
        block = rows[:, : x.shape[1]]
        entries = block[:12].reshape(3, 4, -1)
        np.multiply(n[:, None], x, out=entries[:, :3])
        entries[:, 3] = n
        np.einsum("an,an->n", n, -y, out=block[12])
        form += block @ block.T
    return form


def in_units(form: np.ndarray, scale: float) -> np.ndarray:
    """(13, 13) the form of the mean energy, of E / (total scale^2) in (R, t / scale, 1)."""
    total = form[3, 3] + form[7, 7] + form[11, 11]
    units = np.full(13, 1 / scale)
    units[3:12:4] = 1
    return form * (units[:, None] * (units / (total or 1.0)))


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
