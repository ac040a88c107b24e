"""A folder of the user's own clouds or meshes as a data set."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import torch

from p2plane.data.cloud import Cloud
from p2plane.data.io import READERS, CloudFileError, load_cloud
from p2plane.data.shape import Shape, ShapeDataset, into_unit_sphere
from p2plane.geometry.normals import estimate_normals

MESHES = {".off", ".obj", ".stl", ".ply"}


class CloudFolder(ShapeDataset):
    """Every cloud or mesh under a folder, centred and scaled to the unit sphere; folders are categories.

    A fifth of the files is for testing, chosen by their names alone, so that a file added later moves no other. If the
    folder has folders ``train`` and ``test``, those are the splits.

    Args:
        root: the folder.
        split: "train" or "test", or "all".
        points: drawn at random from larger clouds, and from the faces of meshes.
        neighbors: for a normal, where a file has none.
        seed: of the draws.
    """

    def __init__(
        self, root: str | os.PathLike, split: str = "train", *, points: int = 2048, neighbors: int = 20, seed: int = 0
    ) -> None:
        if split not in ("train", "test", "all"):
            raise ValueError(f"split must be 'train', 'test' or 'all', got {split!r}")
        if points < 1:
            raise ValueError(f"points must be at least 1, got {points}")
        self.root = Path(root)
        if not self.root.is_dir():
            raise FileNotFoundError(f"root must be a folder of clouds or meshes, got {self.root}")
        self._points, self._neighbors, self._seed = points, neighbors, seed
        files = [path for path in self.root.rglob("*") if path.suffix.lower() in READERS and path.is_file()]
        files.sort(key=lambda path: path.relative_to(self.root).as_posix())
        self.files = [path for path in files if _belongs(path, self.root, split)]
        if not self.files:
            raise FileNotFoundError(
                f"{self.root} must hold clouds or meshes for {split!r} ({', '.join(READERS)}), got {len(files)} in all"
            )
        self.names = sorted({_category(path, self.root) for path in files})
        self.labels = torch.tensor([self.names.index(_category(path, self.root)) for path in self.files])

    def shape(self, index: int) -> Shape:
        """The shape of a number that is in range."""
        cloud = self._load(self.files[index])
        points = into_unit_sphere(cloud.points.double()).float()
        normals = cloud.normals
        if normals is None:
            normals = estimate_normals(points, k=self._neighbors).normals
        label = int(self.labels[index])
        return Shape(points, normals.float(), label, self.names[label])

    def _load(self, path: Path) -> Cloud:
        if path.suffix.lower() in MESHES:
            try:
                return load_cloud(path, points_from_mesh=self._points, seed=self._seed)
            except CloudFileError:
                if path.suffix.lower() != ".ply":  # which may also hold points alone
                    raise
        cloud = load_cloud(path)
        if len(cloud) <= self._points:
            return cloud
        generator = torch.Generator().manual_seed(self._seed)
        return cloud.select(torch.randperm(len(cloud), generator=generator)[: self._points])


def _category(path: Path, root: Path) -> str:
    """The innermost folder that is not a split; the root's own name where there is none."""
    folders = [name for name in path.relative_to(root).parts[:-1] if name not in ("train", "test")]
    return folders[-1] if folders else root.resolve().name


def _belongs(path: Path, root: Path, split: str) -> bool:
    inside = path.relative_to(root)
    if split == "all":
        return True
    if (root / "train").is_dir() and (root / "test").is_dir():
        return inside.parts[0] == split
    if {"train", "test"} & set(inside.parts[:-1]):  # as in ModelNet40's own folders, category/train/name.off
        return split in inside.parts[:-1]
    is_test = zlib.crc32(inside.as_posix().encode()) % 5 == 0
    return is_test == (split == "test")
