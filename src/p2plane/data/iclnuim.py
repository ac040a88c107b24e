"""ICL-NUIM: depth frames of synthetic rooms with simulated noise, as DeepGMR passes them on. They have no normals."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from p2plane.data.locate import find_data
from p2plane.data.pair import Pair
from p2plane.data.shape import Shape, ShapeDataset, into_unit_sphere
from p2plane.geometry.normals import estimate_normals

FOLDER = "icl_nuim"
REMEDY = "put DeepGMR's HDF5 files there, as icl_nuim_train.h5 and icl_nuim_test.h5"
NAME = "room"


class IclNuim(ShapeDataset):
    """Frames as shapes: centred, scaled to the unit sphere, with normals estimated from the frame.

    Args:
        split: "train" or "test": the files ``*_train.h5`` or ``*_test.h5``, which hold `points` (S, N, 3).
        root: the data set's folder, or one that holds it; None for P2PLANE_DATA, then the cache.
        neighbors: for a normal.
    """

    names = (NAME,)

    def __init__(self, split: str = "train", *, root: str | os.PathLike | None = None, neighbors: int = 20) -> None:
        self._frames = np.concatenate([_read(path, "points")["points"] for path in _files(root, split)])
        self._neighbors = neighbors
        self._shapes: dict[int, Shape] = {}
        self.labels = torch.zeros(len(self._frames), dtype=torch.int64)

    def shape(self, index: int) -> Shape:
        """The shape of a number that is in range."""
        if index not in self._shapes:
            points = into_unit_sphere(torch.from_numpy(self._frames[index]))
            self._shapes[index] = Shape(points, estimate_normals(points, k=self._neighbors).normals, 0, NAME)
        return self._shapes[index]


class IclNuimPairs(Dataset):
    """DeepGMR's fixed test pairs: `source`, `target` and `transform`, normals estimated."""

    def __init__(self, *, root: str | os.PathLike | None = None, split: str = "test", neighbors: int = 20) -> None:
        (path,) = _files(root, split)[:1]
        arrays = _read(path, "source", "target", "transform")
        self._source, self._target = arrays["source"], arrays["target"]
        self._transforms = arrays["transform"]
        if self._transforms.shape[1:] != (4, 4) or len(self._transforms) != len(self._source):
            raise ValueError(f"{path} must hold one 4x4 transform for each pair, got {self._transforms.shape}")
        self._neighbors = neighbors

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> Pair:
        source, target, T = (torch.from_numpy(each[index]) for each in (self._source, self._target, self._transforms))
        return Pair(source, target, self._normals(source), self._normals(target), T)

    def _normals(self, points: Tensor) -> Tensor:
        return estimate_normals(points, k=self._neighbors).normals


def _files(root: str | os.PathLike | None, split: str) -> list[Path]:
    if split not in ("train", "test"):
        raise ValueError(f"split must be 'train' or 'test', got {split!r}")
    folder = find_data(root, FOLDER, remedy=REMEDY)
    files = sorted([*folder.glob(f"*_{split}.h5"), *folder.glob(f"{split}/icl_nuim*.h5")])
    if not files:
        found = sorted(path.name for path in folder.iterdir())
        raise FileNotFoundError(f"{folder} must hold *_{split}.h5, got {found}")
    return files


def _read(path: Path, *keys: str) -> dict[str, np.ndarray]:
    """Arrays of a file; clouds must be (S, N, 3) and finite."""
    import h5py

    with h5py.File(path, "r") as file:
        if not set(keys) <= set(file):
            raise ValueError(f"{path} must hold {', '.join(keys)}, got {sorted(file)}")
        arrays = {key: np.asarray(file[key], dtype=np.float32) for key in keys}
    for key, array in arrays.items():
        if key != "transform" and (array.ndim != 3 or array.shape[2] != 3):
            raise ValueError(f"{key} in {path} must have shape (S, N, 3), got {array.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"{key} in {path} must be finite")
    return arrays
