"""Point clouds from files and to files, in the format that the end of the name says."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np
import torch
from torch import Tensor

from p2plane.data.cloud import Cloud
from p2plane.data.formats import arrays, e57, kitti, las, mesh, pcd, ply, text
from p2plane.data.formats.content import Content, cloud_from

Function = TypeVar("Function", bound=Callable[..., object])

READERS: dict[str, Callable[[Path], Content]] = {
    ".ply": ply.read,
    ".pcd": pcd.read,
    ".xyz": text.read,
    ".xyzn": text.read,
    ".txt": text.read,
    ".asc": text.read,
    ".csv": text.read,
    ".pts": text.read,
    ".npy": arrays.read_npy,
    ".npz": arrays.read_npz,
    ".bin": kitti.read,
    ".off": mesh.read_off,
    ".obj": mesh.read_obj,
    ".stl": mesh.read_stl,
    ".las": las.read,
    ".laz": las.read,
    ".e57": e57.read,
}

WRITERS: dict[str, Callable[..., None]] = {
    ".ply": ply.write,
    ".pcd": pcd.write,
    ".xyz": text.write,
    ".xyzn": text.write_xyzn,
    ".txt": text.write,
    ".asc": text.write,
    ".csv": text.write_csv,
    ".pts": text.write_pts,
    ".npy": arrays.write_npy,
    ".npz": arrays.write_npz,
    ".bin": kitti.write,
    ".off": mesh.write_off,
    ".obj": mesh.write_obj,
    ".las": las.write,
    ".laz": las.write_laz,
}

CHOICES = {"ascii": (".ply", ".pcd"), "compressed": (".pcd", ".npz")}  # which formats know an option of save_cloud


class CloudFileError(ValueError):
    """A file that cannot be read as a point cloud, or a format that cannot be written."""


def load_cloud(path: str | os.PathLike[str], *, points_from_mesh: int | None = None, seed: int = 0) -> Cloud:
    """The point cloud in a file.

    Points are float64 where the file holds text or doubles, float32 where it holds single precision. Normals come
    back with unit length, and zero where the file has none or nonsense. Points that are not finite are left out, and
    counted in ``dropped``. Columns that are neither points, normals nor colours are kept in ``fields``.

    Text without names of columns, and NPY tables, are read by the number of columns: 3 are points, 4 have an
    intensity, 6 have normals if nearly all of the last three have unit length, otherwise colours if they lie in 0..1
    or are whole numbers in 0..255. An ``.xyzn`` file always has normals.

    Args:
        path: a file whose name ends with one of the keys of `READERS`. LAS, LAZ, E57 and compressed PCD files need
            an extra of this package.
        points_from_mesh: of a mesh (OFF, OBJ, STL, or PLY with faces), draw so many points uniformly by area, each
            with the normal of its face. By default the vertices are the points.
        seed: for the drawing; the same seed draws the same points.

    Raises:
        CloudFileError: the file is broken, or of a kind that is not known.
        FileNotFoundError: there is no such file.
    """
    path = Path(path)
    if points_from_mesh is not None and not (isinstance(points_from_mesh, int) and points_from_mesh > 0):
        raise ValueError(f"points_from_mesh must be a positive integer, got {points_from_mesh!r}")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        if not path.is_file():
            raise ValueError("expected a file, got a folder or a device")
        content = _by_suffix(READERS, path)(path)
        if points_from_mesh is not None:
            return cloud_from(mesh.sample(content, points_from_mesh, seed))
        return cloud_from(content.columns)
    except ValueError as error:
        raise CloudFileError(f"cannot read {path}: {error}") from error
    except MemoryError as error:
        raise CloudFileError(f"cannot read {path}: expected a file that fits into memory, got a larger one") from error


def save_cloud(
    path: str | os.PathLike[str],
    cloud: Cloud | Tensor | np.ndarray,
    *,
    ascii: bool = False,
    compressed: bool = False,
) -> None:
    """Write a point cloud to a file; an older file of that name stays untouched until the new one is complete.

    PLY, PCD, text, CSV and NPZ hold everything that a cloud has, and give it back exactly. The others leave out what
    they cannot hold: ``.npy`` keeps normals or else the intensity, ``.xyzn`` the normals, ``.obj`` the colours,
    ``.bin`` (float32) and ``.pts`` the intensity, ``.off`` nothing but points. LAS and LAZ hold everything, with
    coordinates rounded to a power of ten below a thousand millionth of the cloud's size, colours to 16 bits.

    Args:
        path: a file whose name ends with one of the keys of `WRITERS`.
        cloud: a cloud, or points (N, 3) alone.
        ascii: text instead of binary, for PLY and PCD.
        compressed: for PCD and NPZ.

    Raises:
        CloudFileError: the format is not known, or cannot be written.
    """
    path = Path(path)
    if not isinstance(cloud, Cloud):
        cloud = Cloud(_points(cloud))
    if len(cloud) == 0:
        raise ValueError("cloud must have at least one point, got none")
    try:
        writer = _by_suffix(WRITERS, path)
    except ValueError as error:
        raise CloudFileError(f"cannot write {path}: {error}") from None
    options = {name for name, chosen in (("ascii", ascii), ("compressed", compressed)) if chosen}
    for name in options:
        if path.suffix.lower() not in CHOICES[name]:
            raise ValueError(f"{name} must go with a file out of {', '.join(CHOICES[name])}, got {path.name}")
    if len(options) == 2:
        raise ValueError("ascii must not go with compressed, got both")
    with replacing(path) as file:
        writer(file, cloud, **dict.fromkeys(options, True))


def _by_suffix(table: dict[str, Function], path: Path) -> Function:
    suffix = path.suffix.lower()
    if suffix not in table:
        raise ValueError(f"expected a name that ends with one of {', '.join(table)}, got {suffix or 'no ending'!r}")
    return table[suffix]


def _points(points: Tensor | np.ndarray) -> Tensor:
    if isinstance(points, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(points, dtype=points.dtype.newbyteorder("=")))
    if isinstance(points, Tensor):
        return points
    raise ValueError(f"cloud must be a Cloud, a tensor or a NumPy array, got {type(points).__name__}")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of an old one when it is complete, and vanishes if it never is."""
    target = Path(os.path.realpath(path))  # of a link, the file that it points to
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent} for {path.name}")
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = str(path)  # a full disk does not say which file it had no room for
        raise
