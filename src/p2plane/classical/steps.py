"""A Gauss-Newton step on the summary of a round's pairs, in NumPy for the sake of small clouds.

The summary is that of `solve.quadratic`, ``E(T) = g~^T M g~`` with ``g~ = (T row by row, 1)``, and the step is the
first of its searches. What is not plain, a long step or directions that the data leaves open, goes to `solve.minimize`.
"""

from __future__ import annotations

import numpy as np

AT_ONCE = 1 << 13  # points whose rows stay in the cache


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
    tangents = _tangents(T)
    products = tangents @ form
    matrix = products @ tangents.T
    if np.linalg.eigvalsh(matrix)[0] < undetermined_below:
        return None
    return -np.linalg.solve(matrix, products @ np.append(T.ravel(), 1.0))


def stepped(T: np.ndarray, step: np.ndarray) -> np.ndarray:
    """(3, 4) the pose after a step: Cayley's turn, as in `solve.tangent`, and a shift."""
    half = _hat(step[:3] / 2)
    R = np.linalg.solve(np.eye(3) - half, T[:, :3] + half @ T[:, :3])
    return np.concatenate([R, T[:, 3:] + step[3:, None]], axis=1)


def _tangents(T: np.ndarray) -> np.ndarray:
    """(6, 13) the changes of (T, 1) along the steps."""
    tangents = np.zeros((6, 13))
    turns = tangents[:3, :12].reshape(3, 3, 4)[:, :, :3]  # e_k x R
    x, y, z = T[:, :3]
    turns[0, 1], turns[0, 2] = -z, y
    turns[1, 0], turns[1, 2] = z, -x
    turns[2, 0], turns[2, 1] = -y, x
    tangents[3, 3] = tangents[4, 7] = tangents[5, 11] = 1
    return tangents


def _hat(a: np.ndarray) -> np.ndarray:
    x, y, z = a
    return np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
