"""The summary of a round's pairs, as `solve.quadratic` has it, in NumPy for the sake of small clouds.

The energy of the pairs is ``E(T) = g~^T M g~`` with ``g~ = (T row by row, 1)``. Arrays are channel first: (3, N) points
and directions, (3, 3, N) metrics.
"""

from __future__ import annotations

import numpy as np

AT_ONCE = 1 << 13  # points whose rows stay in the cache
_ENTRIES = [*range(12), 15]  # of T with its last row, 0 0 0 1


def form_of_planes(source: np.ndarray, target: np.ndarray, normals: np.ndarray) -> np.ndarray:
    """(13, 13) the sum of the squared rows ``(n (x) x~, -n.y)``. A weight is a factor of the normal, its root."""
    count = source.shape[1]
    form = np.zeros((13, 13))
    rows = np.empty((13, min(count, AT_ONCE)))
    for start in range(0, count, AT_ONCE):
        x, y, n = (each[:, start : start + AT_ONCE] for each in (source, target, normals))
        block = rows[:, : x.shape[1]]
        entries = block[:12].reshape(3, 4, -1)
        np.multiply(n[:, None], x, out=entries[:, :3])
        entries[:, 3] = n
        np.einsum("an,an->n", n, y, out=block[12])
        form += block @ block.T
    form[12, :12] *= -1
    form[:12, 12] *= -1
    return form


def form_of_metrics(source: np.ndarray, target: np.ndarray, metric: np.ndarray) -> np.ndarray:
    """(13, 13) the sum of ``Q_i (x) x~_i x~_i^T`` with the quadrics of `solve.quadratic`. A weight is in the metric."""
    moments = np.zeros((16, 16))
    for start in range(0, source.shape[1], AT_ONCE):
        x, y, W = (each[..., start : start + AT_ONCE] for each in (source, target, metric))
        points = np.concatenate([x, np.ones_like(x[:1])])
        quadrics = np.empty((4, 4, x.shape[1]))
        quadrics[:3, :3] = W
        quadrics[:3, 3] = quadrics[3, :3] = -np.einsum("abn,bn->an", W, y)
        quadrics[3, 3] = -np.einsum("an,an->n", quadrics[3, :3], y)
        moments += quadrics.reshape(16, -1) @ (points[:, None] * points).reshape(16, -1).T
    form = moments.reshape(4, 4, 4, 4).transpose(0, 2, 1, 3).reshape(16, 16)  # entries (a, k) by (b, l) of T
    return form[np.ix_(_ENTRIES, _ENTRIES)]


def in_units(form: np.ndarray, scale: float) -> np.ndarray:
    """(13, 13) the form of the mean energy, of E / (total scale^2) in (R, t / scale, 1)."""
    total = form[3, 3] + form[7, 7] + form[11, 11]
    units = np.full(13, 1 / scale)
    units[3:12:4] = 1
    return form * (units[:, None] * (units / (total or 1.0)))


def mean_directions(turned: np.ndarray, normals: np.ndarray) -> np.ndarray:
    """(3, N) `solve.problem.symmetric_metric` of turned source normals and those of the target."""
    agree = np.einsum("an,an->n", turned, normals) >= 0
    total = turned + np.where(agree, normals, -normals)
    return total / np.sqrt(np.einsum("an,an->n", total, total)).clip(1e-12)


def precisions_of_planes(turned: np.ndarray, normals: np.ndarray, epsilon: float) -> np.ndarray:
    """(3, 3, N) inverses of the sums of `plane_covariances` of turned source normals and of those of the target.

    By the adjugate: the inverse of A has the rows ``A_2 x A_3, A_3 x A_1, A_1 x A_2`` over the determinant.
    """
    factor = np.sqrt(1 - epsilon)
    m, n = factor * turned, factor * normals
    total = -(m[:, None] * m + n[:, None] * n)
    total[[0, 1, 2], [0, 1, 2]] += 2
    (xx, xy, xz), (_, yy, yz), (_, _, zz) = total
    adjugate = np.empty_like(total)
    adjugate[0, 0], adjugate[1, 1], adjugate[2, 2] = yy * zz - yz * yz, xx * zz - xz * xz, xx * yy - xy * xy
    adjugate[0, 1] = adjugate[1, 0] = xz * yz - xy * zz
    adjugate[0, 2] = adjugate[2, 0] = xy * yz - xz * yy
    adjugate[1, 2] = adjugate[2, 1] = xy * xz - xx * yz
    return adjugate / (xx * adjugate[0, 0] + xy * adjugate[0, 1] + xz * adjugate[0, 2])
