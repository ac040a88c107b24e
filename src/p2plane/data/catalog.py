"""The data sets that are known by name: where they are, whether they are whole, and where to get them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from p2plane.data.archive import Archive
from p2plane.data.download import download
from p2plane.data.iclnuim import REMEDY as ICLNUIM_REMEDY
from p2plane.data.iclnuim import IclNuim
from p2plane.data.locate import cache_folder, find_data
from p2plane.data.modelnet import HDF5, RESAMPLED, ModelNet40
from p2plane.data.pairs import Shapes
from p2plane.data.synthetic import SyntheticShapes

MODELNET_TERMS = "academic use; Princeton ModelNet, Wu et al. 2015"


@dataclass(frozen=True)
class Entry:
    """A data set that is known by name."""

    about: str
    open: Callable[[str, Path | None], Shapes]  # (split, root) -> shapes
    folder: str | None = None  # its name on disk; None for one that needs no file
    archive: Archive | None = None  # None where there is nothing to download
    remedy: str = ""  # what to do instead


CATALOG = {
    "modelnet40": Entry(
        "CAD models of 40 categories, 2048 points with normals (HDF5, 0.4 GB)",
        lambda split, root: ModelNet40(split, root=root),
        HDF5,
        Archive(
            HDF5,
            (
                f"https://shapenet.cs.stanford.edu/media/{HDF5}.zip",
                f"https://huggingface.co/datasets/Msun/modelnet40/resolve/main/{HDF5}.zip",
            ),
            checksum="md5:c9ab8e6dfb16f67afdab25e155c79e59",
            licence=MODELNET_TERMS,
        ),
    ),
    "modelnet40-resampled": Entry(
        "the same models, 10,000 points with normals (text, 1.6 GB)",
        lambda split, root: ModelNet40(split, root=_folder(RESAMPLED, root)),
        RESAMPLED,
        Archive(RESAMPLED, (f"https://shapenet.cs.stanford.edu/media/{RESAMPLED}.zip",), licence=MODELNET_TERMS),
    ),
    "icl-nuim": Entry(
        "depth frames of a synthetic living room, without normals (HDF5)",
        lambda split, root: IclNuim(split, root=root),
        "icl_nuim",
        remedy=ICLNUIM_REMEDY,
    ),
    "synthetic": Entry(
        "objects made by program, of the same 40 categories (built in)", lambda split, root: SyntheticShapes(split)
    ),
}
"""The data sets by name."""


def open_shapes(name: str, split: str, root: str | os.PathLike | None = None) -> Shapes:
    """The shapes of a data set by its name.

    Args:
        name: a key of `CATALOG`.
        split: "train" or "test".
        root: the data set's folder, or one that holds it; None for P2PLANE_DATA, then the cache.
    """
    return entry(name).open(split, None if root is None else Path(root))


def entry(name: str) -> Entry:
    """What is known under a name."""
    if name not in CATALOG:
        raise ValueError(f"name must be one of {tuple(CATALOG)}, got {name!r}")
    return CATALOG[name]


def fetch(name: str, folder: str | os.PathLike | None = None) -> Path:
    """The folder of a data set, downloaded into `folder` (the cache) unless it is there."""
    known = entry(name)
    if known.folder is None:
        raise ValueError(f"name must be a data set with files, got {name!r}, which is built in")
    if known.archive is None:
        raise ValueError(f"name must be a data set that can be downloaded, got {name!r}: {known.remedy}")
    return download(known.archive, cache_folder() if folder is None else Path(folder))


def whereabouts(name: str, root: str | os.PathLike | None = None) -> Path | None:
    """Where a data set lies; None where it is not to be found, or needs no place."""
    known = entry(name)
    if known.folder is None:
        return None
    try:
        found = find_data(root, known.folder, remedy="")
    except FileNotFoundError:
        return None
    return found if found.name == known.folder else None


def listing(root: str | os.PathLike | None = None) -> str:
    """A line for each data set: what it is, and where."""
    lines = []
    for name, known in CATALOG.items():
        found = whereabouts(name, root)
        place = str(found) if found else "built in" if known.folder is None else "not here"
        if found is None and known.folder is not None:
            place += f": p2plane data download {name}" if known.archive else f": {known.remedy}"
        lines.append(f"{name:22s} {known.about}\n{'':22s} {place}")
    return "\n".join(lines)


def check(name: str, root: str | os.PathLike | None = None) -> str:
    """What a data set holds, after every shape has been read; a ValueError where something is wrong with one."""
    lines = []
    for split in ("train", "test"):
        shapes = open_shapes(name, split, root)
        sizes = []
        for index in range(len(shapes)):
            shape = shapes[index]
            if not (shape.points.isfinite().all() and shape.normals.isfinite().all()):
                raise ValueError(f"shape {index} of {name} {split} must be finite, got NaN or infinity")
            sizes.append(len(shape))
        lines.append(f"{name} {split}: {len(sizes)} shapes of {min(sizes)} to {max(sizes)} points, all finite")
    return "\n".join(lines)


def _folder(name: str, root: Path | None) -> Path:
    return find_data(root, name, remedy="get it with `p2plane data download modelnet40-resampled`")
