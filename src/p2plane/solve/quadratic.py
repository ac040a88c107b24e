"""One pass over the points turns any squared distance into a quadratic form in the pose.

A pair (x_i, y_i) with the metric W_i and the weight w_i costs ``w_i (T x~_i - y_i)^T W_i (T x~_i - y_i)``, with
``x~ = (x, 1)``. In homogeneous coordinates that is ``x~^T T~^T Q_i T~ x~`` with the 4x4 quadric

    Q_i = w_i [W_i, -W_i y_i; -(W_i y_i)^T, y_i^T W_i y_i],

so the energy of all pairs is a quadratic form in the entries of T~, with the matrix ``sum_i Q_i (x) x~_i x~_i^T``.
Every distance is a choice of W_i; nothing after this pass sees a point again.

Poses are (B, 3, 4) here, always float64. The pass is about one of the pairs, so that a cloud in map coordinates keeps
its digits; the form then moves to the source's centroid and is divided by one scale, so that rotations compare with
translations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from p2plane.solve.arrays import Constant, beside, fixed, namespace, rounded, silent, small, tensor_of
from p2plane.solve.inputs import Pairs, explain_not_finite, holds
from p2plane.solve.sums import sums


def _moment_map() -> Tensor:
    """(169, 5): from a form's entries to the sums of w_i tr(W_i) times x_i, its square and one."""
    entries = torch.eye(169, dtype=torch.float64).view(169, 13, 13)[:, :12, :12].reshape(169, 3, 4, 3, 4)
    traces = entries.diagonal(dim1=1, dim2=3).sum(-1)  # (169, 4, 4) of x~ x~^T
    squares = traces.diagonal(dim1=1, dim2=2)[:, :3].sum(-1)
    return torch.cat([traces[:, :3, 3], squares[:, None], traces[:, 3:, 3]], dim=1)


def _change_maps() -> tuple[Tensor, Tensor, Tensor]:
    """(3, 169), (169,) and (169,): a matrix that moves a form in (T, -1) into a frame, ``(shift A + B) / scale + C``.

    With ``x - shift`` for x in the rows of T; then the units. What belongs to t keeps its size, as the energy is
    divided by the square of the scale.
    """
    shift, by_scale, constant = (torch.zeros(*size, 13, 13, dtype=torch.float64) for size in ((3,), (), ()))
    for row in (0, 4, 8):
        for k in range(3):
            shift[k, row + k, row + 3] = -1
            by_scale[row + k, row + k] = 1
        constant[row + 3, row + 3] = 1
    by_scale[12, 12] = -1
    return shift.flatten(1), by_scale.flatten(), constant.flatten()


# Radii under these are taken for zero: their inverse, which gradients are as large as, is hardly a number any more.
SMALLEST = {torch.float32: 1e-36, torch.float64: 1e-100}
_MOMENTS = Constant.of(_moment_map())
_CHANGE = tuple(map(Constant.of, _change_maps()))


class Frame(NamedTuple):
    """Local coordinates: ``x' = (x - source_center) / scale``, ``y' = (y - target_center) / scale``.

    Made of arrays of either kind (see `arrays`), as are the poses that it is asked about.
    """

    source_center: Tensor  # (B, 3, 1)
    target_center: Tensor  # (B, 3, 1)
    scale: Tensor  # (B, 1, 1)

    @property
    def centers(self) -> Tensor:
        """(B, 6, 1) of the source, and under it of the target."""
        return namespace(self.scale).concatenate([self.source_center, self.target_center], 1)

    def unscaled(self, T: Tensor) -> Tensor:
        """(B, 3, 4) a local pose, or a direction of one, between the centred clouds before they are scaled."""
        return self._joined(T, self.scale * T[:, :, 3:])

    def centered(self, T: Tensor) -> Tensor:
        """(B, 3, 4) pose between the centred clouds before they are scaled, of a pose between the caller's."""
        return self._joined(T, self._between_centers(T))

    def centered_direction(self, V: Tensor) -> Tensor:
        """(B, 3, 4) the same for a direction in which the pose moves."""
        return self._joined(V, V[:, :, 3:] + V[:, :, :3] @ self.source_center)

    def to_local(self, T: Tensor) -> Tensor:
        """(B, 3, 4) pose between the local frames, of a pose between the caller's."""
        return self._joined(T, self._between_centers(T) / self.scale)

    def to_caller(self, T: Tensor) -> Tensor:
        """(B, 3, 4) pose between the caller's frames, of a pose between the local ones."""
        return self._joined(T, self.target_center + self.scale * T[:, :, 3:] - T[:, :, :3] @ self.source_center)

    def _between_centers(self, T: Tensor) -> Tensor:
        """(B, 3, 1) from the target's centre to where the caller's pose takes the source's."""
        return T[:, :, 3:] - self.target_center + T[:, :, :3] @ self.source_center

    @staticmethod
    def _joined(T: Tensor, t: Tensor) -> Tensor:
        """(B, 3, 4) the pose T with another translation (B, 3, 1)."""
        return namespace(T).concatenate([T[:, :, :3], t], -1)


@dataclass(frozen=True)
class Quadratic:
    """Mean energy in local units, ``E(T) / (total scale^2) = g~^T M g~`` with ``g~ = (T row by row, 1)``.

    Made of tensors, but for a `small_summary`.
    """

    matrix: Tensor  # (B, 13, 13), symmetric: H of the 12 entries of T, -c beside it, d in the corner
    total: Tensor  # (B, 1, 1) sum of w_i trace(W_i), the sum of the weights for planes; one where that is zero
    frame: Frame

    def value_and_gradient(self, T: Tensor) -> tuple[Tensor, Tensor]:
        """(B,) values at local poses, and half the derivative by the entries of T, (B, 3, 4)."""
        extended = pad(T.reshape(-1, 12, 1), (0, 0, 0, 1), value=1.0)
        product = torch.bmm(self.matrix, extended)  # (B, 13, 1)
        return torch.bmm(extended.mT, product).view(-1), product[:, :12].reshape(-1, 3, 4)

    def tensors(self) -> Quadratic:
        """The same, made of tensors."""
        return Quadratic(tensor_of(self.matrix), tensor_of(self.total), Frame(*map(tensor_of, self.frame)))

    def take(self, index: Tensor) -> Quadratic:
        """Some pairs of the batch."""
        return Quadratic(self.matrix[index], self.total[index], Frame(*(part[index] for part in self.frame)))

    def unit(self) -> Tensor:
        """(B, 1, 1) what one unit of the mean, local energy is in the caller's units."""
        return self.total * self.frame.scale.square()


def summarize(pairs: Pairs, frame: Frame | None = None) -> Quadratic:
    """The quadratic form of a set of pairs.

    Args:
        pairs: matched pairs with their metric.
        frame: the local frame; chosen from the pairs when it is None: centroid and root mean square radius of the
            source, each point weighted by w_i trace(W_i), and a point of the target.

    Gradient: source, target, metric, weights, at a fixed frame.
    """
    form, centers = sums(pairs, None if frame is None else frame.centers)
    return _in_local_units(pairs, form, centers, frame)


def small_summary(pairs: Pairs) -> Quadratic:
    """The same in its own frame and without a gradient, made of arrays as `arrays.small` chooses them."""
    form, centers = small(*sums(pairs, None))
    return _in_local_units(pairs, form, centers, None)


def _in_local_units(pairs: Pairs, form: Any, centers: Any, frame: Frame | None) -> Quadratic:
    """The summary of a form (B, 13, 13) about centres (B, 6, 1), in a frame or else in one that suits it."""
    with silent(form):  # what is not finite is explained
        # gradient stops here: the optimal pose does not depend on the units it is computed in
        moments = (fixed(form).reshape(-1, 169) @ beside(form, _MOMENTS))[:, :, None]  # (B, 5, 1)
        total = moments[:, 4:]
        total = namespace(form).where(total == 0, 1.0, total)
        frame = _frame(centers, moments[:, :4] / total, pairs.precision) if frame is None else frame
        by_shift, by_scale, constant = (beside(form, each) for each in _CHANGE)
        shift = (frame.source_center - centers[:, :3])[:, :, 0]
        change = ((shift @ by_shift + by_scale) / frame.scale[:, :, 0] + constant).reshape(-1, 13, 13)
        matrix = change @ (form / total) @ change.swapaxes(1, 2)
        if holds(namespace(matrix).isfinite(matrix.sum())) is False:
            explain_not_finite(pairs)
    return Quadratic(matrix, total, frame)


def _frame(centers: Any, means: Any, dtype: torch.dtype) -> Frame:
    """The frame of clouds whose source has means (B, 4, 1) of x and of its square about centres (B, 6, 1).

    The scale is the root mean square radius; one where all points coincide, up to rounding.
    """
    mean = means[:, :3]
    center = rounded(rounded(centers[:, :3] + mean, dtype), torch.float64)  # points of that dtype will be moved there
    square = means[:, 3:] - mean.swapaxes(1, 2) @ mean
    rounding = (8 * torch.finfo(dtype).eps) ** 2 * (center.swapaxes(1, 2) @ center) + SMALLEST[dtype] ** 2
    scale = namespace(square).where(square > rounding, square, 1.0) ** 0.5
    return Frame(center, centers[:, 3:], scale)
