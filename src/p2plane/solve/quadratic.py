"""One pass over the points turns any squared distance into a quadratic form in the pose.

A pair (x_i, y_i) with the metric W_i and the weight w_i costs ``w_i (T x~_i - y_i)^T W_i (T x~_i - y_i)``, with
``x~ = (x, 1)``. In homogeneous coordinates that is ``x~^T T~^T Q_i T~ x~`` with the 4x4 quadric

    Q_i = w_i [W_i, -W_i y_i; -(W_i y_i)^T, y_i^T W_i y_i],

so the energy of all pairs is a quadratic form in the entries of T~, with the matrix ``sum_i Q_i (x) x~_i x~_i^T``.
Every distance is a choice of W_i; nothing after this pass sees a point again.

Poses are (B, 3, 4) here, always float64, and the points are first moved to their centroids and divided by one scale,
so that a cloud in map coordinates keeps its digits and rotations compare with translations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from p2plane.solve.arrays import Constant, beside, fixed, namespace, silent, small, tensor_of
from p2plane.solve.inputs import Pairs, explain_not_finite, holds
from p2plane.solve.sums import sums

# Powers of the scale in the units of what the form is a form in: the entries of T, row by row, and the one.
_POWERS = Constant.of(torch.tensor([0.0 if k % 4 == 3 else -1.0 for k in range(13)], dtype=torch.float64))
# (13, 2) from the form's diagonal to the traces of what belongs to R, and to t; the one belongs to neither.
_TRACES = Constant.of(
    torch.stack([_POWERS.tensor == -1, _POWERS.tensor == 0], dim=1).double() * (torch.arange(13) < 12)[:, None]
)


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
        return torch.cat([self.source_center, self.target_center], dim=1)

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
        frame: the local frame; chosen from the pairs when it is None: weighted centroids, and the root mean square
            radius of the source, each point weighted by w_i trace(W_i).

    Gradient: source, target, metric, weights, at a fixed frame.
    """
    form, centers = sums(pairs, None if frame is None else frame.centers)
    return _in_local_units(pairs, form, centers, None if frame is None else frame.scale)


def small_summary(pairs: Pairs) -> Quadratic:
    """The same in its own frame and without a gradient, made of arrays as `arrays.small` chooses them."""
    form, centers = small(*sums(pairs, None))
    return _in_local_units(pairs, form, centers, None)


def _in_local_units(pairs: Pairs, form: Any, centers: Any, scale: Any) -> Quadratic:
    """The summary of a form (B, 13, 13) about centres (B, 6, 1), in units of a scale or else of one that suits it."""
    with silent(form):  # what is not finite is explained
        # gradient stops here: the optimal pose does not depend on the units it is computed in
        traces = fixed(form).diagonal(0, 1, 2) @ beside(form, _TRACES)
        squares, total = traces[:, :1, None], traces[:, 1:, None]  # (B, 1, 1) sum of w tr(W) |x|^2 and of w tr(W)
        total = total + (total == 0)
        if scale is None:
            scale = _scale(squares / total, centers[:, :3], pairs.source.dtype)
        # The form of E / scale^2 in (R, t / scale, 1): only what belongs to t keeps its size.
        units = scale ** beside(form, _POWERS)  # (B, 1, 13)
        matrix = form * (units.swapaxes(1, 2) * (units / total))
        if holds(namespace(matrix).isfinite(matrix.sum())) is False:
            explain_not_finite(pairs)
    return Quadratic(matrix, total, Frame(centers[:, :3], centers[:, 3:], scale))


def _scale(mean_square: Any, source_center: Any, dtype: torch.dtype) -> Any:
    """(B, 1, 1) root mean square radius of the source; one where all points coincide, up to rounding."""
    rounding = 8 * torch.finfo(dtype).eps * (source_center * source_center).sum(1)[:, :, None] ** 0.5
    radius = mean_square**0.5
    return namespace(radius).where(radius > rounding, radius, 1.0)
