"""The summary of a round's pairs, as `solve.quadratic` has it, in NumPy for the sake of small clouds.

The energy of the pairs is ``E(T) = g~^T M g~`` with ``g~ = (T row by row, 1)``, where M is the sum of
``Q_i (x) x~_i x~_i^T`` with the quadrics of `solve.quadratic`. Both factors are symmetric: ten entries of each make all
of M, and those of the second stay the same from round to round. Arrays are channel first: (3, N) points and directions,
(3, 3, N) metrics, (10, N) symmetric matrices.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

AT_ONCE = 1 << 13  # points whose rows stay in the cache
_UPPER = np.triu_indices(4)  # the ten entries, row by row
_METRIC, _SHIFT, _CONSTANT = [0, 1, 2, 4, 5, 7], [3, 6, 8], 9  # which of them are the parts of a quadric


def _places() -> np.ndarray:
    """(13, 13) where the entries of M are in the product (10, 10) of quadrics and moments, row by row."""
    symmetric = np.empty((4, 4), dtype=np.int64)
    symmetric[_UPPER] = symmetric.T[_UPPER] = np.arange(10)
    places = 10 * symmetric[:, None, :, None] + symmetric[None, :, None, :]  # entries (a, k) by (b, l) of T
    entries = [*range(12), 15]  # of T with its last row, 0 0 0 1
    return places.reshape(16, 16)[np.ix_(entries, entries)]


_PLACES = _places()


def moments_of(points: np.ndarray) -> np.ndarray:
    """(10, N) ``x~ x~^T`` of points (3, N)."""
    return _squares(np.concatenate([points, np.ones_like(points[:1])]))


def form_of_planes(moments: np.ndarray, target: np.ndarray, normals: np.ndarray) -> np.ndarray:
    """(13, 13) with the squares of ``n.x - n.y``. A weight is a factor of the normal, its root."""
    return _form(_quadrics_of_planes, moments, target, normals)


def form_of_metrics(moments: np.ndarray, target: np.ndarray, metric: np.ndarray) -> np.ndarray:
    """(13, 13) with the squared distances in a metric (3, 3, N). A weight is in the metric."""
    return _form(_quadrics_of_metrics, moments, target, metric)


def _form(quadrics: Callable[..., np.ndarray], moments: np.ndarray, *pairs: np.ndarray) -> np.ndarray:
    products = np.zeros((10, 10))
    for start in range(0, moments.shape[1], AT_ONCE):
        block = slice(start, start + AT_ONCE)
        products += quadrics(*(each[..., block] for each in pairs)) @ moments[:, block].T
    return products.take(_PLACES)


def _quadrics_of_planes(target: np.ndarray, normals: np.ndarray) -> np.ndarray:
    """(10, N) squares of the planes ``(n, -n.y)``."""
    planes = np.empty((4, target.shape[1]))
    planes[:3] = normals
    np.einsum("an,an->n", normals, -target, out=planes[3])
    return _squares(planes)


def _quadrics_of_metrics(target: np.ndarray, metric: np.ndarray) -> np.ndarray:
    """(10, N) ``[W, -W y; -y^T W, y^T W y]``."""
    quadrics = np.empty((10, target.shape[1]))
    quadrics[_METRIC] = metric[np.triu_indices(3)]
    shift = np.einsum("abn,bn->an", metric, -target)
    quadrics[_SHIFT] = shift
    np.einsum("an,an->n", shift, -target, out=quadrics[_CONSTANT])
    return quadrics


def _squares(vectors: np.ndarray) -> np.ndarray:
    """(10, N) ``v v^T`` of vectors (4, N)."""
    squares = np.empty((10, vectors.shape[1]))
    for first, row in enumerate((0, 4, 7, 9)):
        np.multiply(vectors[first], vectors[first:], out=squares[row : row + 4 - first])
    return squares


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
