"""Clouds on regular grids: the nearest point at the price of one look-up, and the best shift by correlation."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

OUTLYING = 0.01  # share of the points, at either end of an axis, that has no say in how large a cloud is
ROTATIONS_AT_ONCE = 16


def extent_box(points: Tensor) -> tuple[Tensor, Tensor]:
    """(3,) lowest and highest corner of a cloud (N, 3) without its outlying points."""
    ordered = points.sort(dim=0).values
    skip = int(OUTLYING * len(points))
    return ordered[skip], ordered[len(points) - 1 - skip]


class NearestGrid:
    """For every place near a cloud, the row of the cloud's point that is about nearest: within a cell's diagonal."""

    def __init__(self, points: Tensor, cells: int = 64, margin: float = 0.25) -> None:
        """Args:
        points: (N, 3), at least one.
        cells: along the longest side.
        margin: how far the grid reaches beyond the cloud, in units of its longest side.
        """
        from scipy.ndimage import distance_transform_edt

        low, high = extent_box(points)
        longest = float((high - low).max()) or 1.0
        self._cell = longest * (1 + 2 * margin) / cells
        self._low = (low - margin * longest).tolist()
        self._last = ((high - low + 2 * margin * longest) / self._cell).ceil().long().tolist()
        occupied = np.full([last + 1 for last in self._last], -1)
        occupied[tuple(axis.numpy() for axis in self._places(points.mT))] = np.arange(len(points))
        nearest = distance_transform_edt(occupied < 0, return_distances=False, return_indices=True)
        self._rows = torch.from_numpy(occupied[tuple(nearest)].ravel())

    def __call__(self, query: Tensor) -> Tensor:
        """(..., N) int64 rows for places (..., 3, N); those outside take the nearest cell."""
        x, y, z = self._places(query)
        return self._rows[(x * (self._last[1] + 1) + y) * (self._last[2] + 1) + z]

    def _places(self, points: Tensor) -> list[Tensor]:
        """Along each axis, the int64 cells (..., N) of points (..., 3, N)."""
        axes = zip(points.unbind(-2), self._low, self._last, strict=True)
        # Clamped before they are integers: a far place would not fit into one, and what is none takes the first cell.
        cells = ((((along - low) / self._cell).nan_to_num_(0.0), last) for along, low, last in axes)
        return [along.clamp_(min=0).clamp_(max=last).long() for along, last in cells]


def best_translations(source: Tensor, target: Tensor, rotations: Tensor, cells: int) -> Tensor:
    """(K, 3) for each rotation (K, 3, 3), the shift that lets most of the turned source fall on the target.

    Both clouds (N, 3), (M, 3) become grids of occupied cells, the target's blurred by one cell, and the highest value
    of their correlation, found by Fourier transforms, is the best shift.
    """
    from scipy.ndimage import gaussian_filter

    center = source.mean(0)
    source = source - center
    radius = source.norm(dim=-1).max()
    cell = float(torch.maximum(2 * radius, (target.amax(0) - target.amin(0)).max())) / (cells - 1) or 1.0
    size, low = 2 * cells, target.amin(0)  # twice as many cells as a cloud takes: shifts do not wrap around
    blurred = gaussian_filter(_occupied((target - low)[None], cell, size)[0].numpy(), 1.0, mode="wrap")
    spectrum = torch.fft.rfftn(torch.from_numpy(blurred))
    shifts = []
    for some in rotations.split(ROTATIONS_AT_ONCE):
        turned = source @ some.mT  # (k, N, 3)
        corner = turned.amin(1)
        moving = torch.fft.rfftn(_occupied(turned - corner[:, None], cell, size), dim=(1, 2, 3))
        overlap = torch.fft.irfftn(moving.conj() * spectrum, s=(size,) * 3, dim=(1, 2, 3))
        highest = overlap.flatten(1).argmax(1)
        steps = torch.stack([highest // size**2, highest // size % size, highest % size], dim=-1)
        steps = torch.where(steps >= cells, steps - size, steps)
        shifts.append(low + cell * steps - corner - some @ center)
    return torch.cat(shifts)


def _occupied(points: Tensor, cell: float, size: int) -> Tensor:
    """(K, size, size, size) float32, one where a cell holds a point of the clouds (K, N, 3), whose corner is zero."""
    places = (points / cell).long().clamp(max=size - 1)
    flat = (places[..., 0] * size + places[..., 1]) * size + places[..., 2]
    return torch.zeros(len(points), size**3).scatter_(1, flat, 1.0).view(-1, size, size, size)
