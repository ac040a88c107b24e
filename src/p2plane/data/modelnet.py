"""ModelNet40, in the two layouts in which it is passed on: HDF5 files, or a folder of text files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from p2plane.data.locate import find_data
from p2plane.data.shape import Shape, ShapeDataset

HDF5, RESAMPLED = "modelnet40_ply_hdf5_2048", "modelnet40_normal_resampled"
REMEDY = "get it with `p2plane data download modelnet40`, or use SyntheticShapes, which needs no file"


class ModelNet40(ShapeDataset):
    """CAD models of forty categories, points with normals; for academic use.

    Points whose normal is (1, 1, 1), which marks a degenerate face, are left out, so shapes differ in their number of
    points by a few.

    Args:
        split: "train" or "test".
        root: the data set's folder, or one that holds it; None for P2PLANE_DATA, then the cache. Both layouts are read:
            ``modelnet40_ply_hdf5_2048`` and ``modelnet40_normal_resampled``.
        categories: restrict to these; labels stay the same.
        points: the first so many of each shape; None for all.
    """

    def __init__(
        self,
        split: str = "train",
        *,
        root: str | os.PathLike | None = None,
        categories: Sequence[str] | None = None,
        points: int | None = None,
    ) -> None:
        if split not in ("train", "test"):
            raise ValueError(f"split must be 'train' or 'test', got {split!r}")
        if points is not None and points < 1:
            raise ValueError(f"points must be at least 1, got {points}")
        self.folder = find_data(root, HDF5, RESAMPLED, remedy=REMEDY)
        self.split, self.points = split, points
        layout = _TextFiles if (self.folder / "modelnet40_shape_names.txt").is_file() else _Hdf5Files
        self._files = layout(self.folder, split)
        self.names: list[str] = self._files.names
        self._members = np.flatnonzero(np.isin(self._files.labels, _labels_of(categories, self.names)))
        self.labels = torch.from_numpy(self._files.labels[self._members])

    def shape(self, index: int) -> Shape:
        """The shape of a number that is in range."""
        points, normals = (rows[: self.points] for rows in self._files.shape(self._members[index]))
        label = int(self.labels[index])
        return Shape(torch.from_numpy(points), torch.from_numpy(normals), label, self.names[label])


class _Hdf5Files:
    """``data``, ``normal`` and ``label`` in the files that ``train_files.txt`` or ``test_files.txt`` lists."""

    def __init__(self, folder: Path, split: str) -> None:
        self.names = _lines(folder / "shape_names.txt")
        files = [folder / Path(line).name for line in _lines(folder / f"{split}_files.txt")]
        arrays = [_read_hdf5(path) for path in files]
        self._points, self._normals = [each[0] for each in arrays], [each[1] for each in arrays]
        self.labels = np.concatenate([each[2] for each in arrays])
        self._good = [_normalize(normals) for normals in self._normals]
        self._starts = np.cumsum([0, *(len(each) for each in self._points)])

    def shape(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Points and unit normals of one shape, without points that have no normal."""
        file = int(np.searchsorted(self._starts, index, side="right")) - 1
        row = index - self._starts[file]
        points, normals = self._points[file][row], self._normals[file][row]
        if row not in self._good[file]:
            return points, normals
        good = self._good[file][row]
        return points[good], normals[good]


class _TextFiles:
    """One text file of 10,000 lines ``x,y,z,nx,ny,nz`` for each shape, in folders by category."""

    def __init__(self, folder: Path, split: str) -> None:
        self.names = _lines(folder / "modelnet40_shape_names.txt")
        self._folder, self._shapes = folder, _lines(folder / f"modelnet40_{split}.txt")
        categories = [name.rsplit("_", 1)[0] for name in self._shapes]
        unknown = sorted(set(categories) - set(self.names))
        if unknown:
            raise ValueError(f"modelnet40_{split}.txt must list shapes of known categories, got {unknown[0]!r}")
        self.labels = np.array([self.names.index(category) for category in categories], dtype=np.int64)

    def shape(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        name = self._shapes[index]
        path = self._folder / name.rsplit("_", 1)[0] / f"{name}.txt"
        rows = np.loadtxt(path, delimiter=",", dtype=np.float32, ndmin=2)
        if rows.shape[1] != 6:
            raise ValueError(f"{path} must have six columns, got {rows.shape[1]}")
        points, normals = rows[:, :3], rows[None, :, 3:].copy()
        good = _normalize(normals).get(0, slice(None))
        return points[good], normals[0][good]


def _read_hdf5(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(S, N, 3) points and normals, (S,) labels of one file."""
    import h5py

    if not path.is_file():
        raise FileNotFoundError(f"{path} must be there, as the list beside it says; {REMEDY}")
    with h5py.File(path, "r") as file:
        missing = {"data", "normal", "label"} - set(file)
        if missing:
            raise ValueError(f"{path} must hold data, normal and label, got {sorted(file)}")
        points, normals = (np.asarray(file[key], dtype=np.float32) for key in ("data", "normal"))
        labels = np.asarray(file["label"], dtype=np.int64).reshape(-1)
    if points.ndim != 3 or points.shape[2] != 3 or normals.shape != points.shape or len(labels) != len(points):
        shapes = points.shape, normals.shape, labels.shape
        raise ValueError(f"{path} must hold data and normal of shape (S, N, 3) and S labels, got {shapes}")
    return points, normals, labels


def _normalize(normals: np.ndarray) -> dict[int, np.ndarray]:
    """Give the normals (S, N, 3) unit length, in place; masks (N,) of the good ones, for shapes that have bad ones."""
    length = np.linalg.norm(normals, axis=2, keepdims=True)
    bad = (normals == 1).all(axis=2) | (length[:, :, 0] == 0)  # (1, 1, 1) marks a degenerate face
    np.divide(normals, length, out=normals, where=length > 0)
    return {int(row): ~bad[row] for row in np.flatnonzero(bad.any(axis=1))}


def _labels_of(categories: Sequence[str] | None, names: list[str]) -> list[int]:
    if categories is None:
        return list(range(len(names)))
    unknown = sorted(set(categories) - set(names))
    if isinstance(categories, str) or unknown or not categories:
        raise ValueError(f"categories must be some of {names}, got {categories!r}")
    return [names.index(name) for name in categories]


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise FileNotFoundError(f"{path.name} must be in {path.parent}, but it is not; {REMEDY}")
    return [line.strip() for line in path.read_text().splitlines() if line.strip()]
