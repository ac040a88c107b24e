"""What a file holds, as named columns of numbers, and the way from there to a `Cloud` and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from p2plane.data.cloud import Cloud

Columns = dict[str, np.ndarray]  # name -> (N,) numbers

POINTS = (("x", "y", "z"),)
NORMALS = (("nx", "ny", "nz"), ("normal_x", "normal_y", "normal_z"), ("normalx", "normaly", "normalz"))
COLORS = (("red", "green", "blue"), ("r", "g", "b"))
UNIT = 1e-6  # a normal whose length is that near to one stays as it is, so that saving and loading changes nothing

# Torch can hold the unsigned integers on the left, but not index them.
_SIGNED = {"u2": "i4", "u4": "i8"}


@dataclass(frozen=True)
class Content:
    """The numbers of a file, before anything is made of them."""

    columns: Columns
    """(N,) each; x, y and z among them."""
    faces: np.ndarray | None = None
    """(F, 3) int64, rows of the columns; None where the file holds no faces."""


def cloud_from(columns: Columns) -> Cloud:
    """The cloud in some columns: finite points only, normals of unit length, colours in [0, 1], the rest as fields."""
    rest = dict(columns)
    points = take_points(rest)
    normals, colors = _take(rest, NORMALS), _take(rest, COLORS)
    good = np.isfinite(points).all(axis=1)
    if not good.any():
        raise ValueError(f"expected at least one finite point, got none in {len(points)}")
    is_single = points.dtype.kind == "f" and points.dtype.itemsize <= 4
    points = points[good].astype(np.float32 if is_single else np.float64)
    return Cloud(
        points=tensor(points),
        normals=None if normals is None else tensor(unit(normals[good]).astype(points.dtype)),
        colors=None if colors is None else tensor(unit_colors(colors[good])),
        fields={name: tensor(column[good]) for name, column in rest.items()},
        dropped=int(len(good) - good.sum()),
    )


def take_points(columns: Columns) -> np.ndarray:
    """(N, 3) the columns x, y and z, which leave the others."""
    points = _take(columns, POINTS)
    if points is None:
        raise ValueError(f"expected columns x, y and z, got {shown(columns) or 'none'}")
    return points


def columns_of(cloud: Cloud) -> Columns:
    """Columns x y z, nx ny nz, red green blue (bytes if that loses nothing), then the fields, as `cloud_from` reads."""
    columns = dict(zip(POINTS[0], array(cloud.points).T, strict=True))
    if cloud.normals is not None:
        columns |= zip(NORMALS[0], array(cloud.normals).T, strict=True)
    if cloud.colors is not None:
        columns |= zip(COLORS[0], _color_bytes(array(cloud.colors)).T, strict=True)
    for name, values in cloud.fields.items():
        plain = "_".join(name.split())
        if not plain or plain.lower() in {word for names in (*POINTS, *NORMALS, *COLORS) for word in names}:
            raise ValueError(f"fields must have names that mean nothing else in a file, got {name!r}")
        if plain in columns:
            raise ValueError(f"fields must have different names in a file, got {plain!r} twice")
        columns[plain] = array(values)
    return columns


def table_of(columns: Columns) -> np.ndarray:
    """(N,) records of the columns, little endian, as binary files store them."""
    count = len(next(iter(columns.values())))
    table = np.empty(count, [(name, "<" + column.dtype.str[1:]) for name, column in columns.items()])
    for name, column in columns.items():
        table[name] = column
    return table


def unnamed(table: np.ndarray) -> Columns:
    """Columns of a table (N, C) without names: x y z, then what the number of columns suggests.

    Four columns end with the intensity. Six or nine go on with triples: normals if nearly all have unit length (or
    none, zero), otherwise colours if they lie in 0..1 or are whole numbers in 0..255. Anything else is called
    ``column_4`` and so on.
    """
    if table.ndim != 2 or table.shape[1] < 3:
        raise ValueError(f"expected a table of at least three columns, x y z, got shape {table.shape}")
    limits_of_triples = range(3, table.shape[1], 3) if table.shape[1] in (6, 9) else ()
    names = [*POINTS[0], *(f"column_{i}" for i in range(4, table.shape[1] + 1))]
    if table.shape[1] == 4:
        names[3] = "intensity"
    for first in limits_of_triples:
        triple = table[:, first : first + 3]
        if "nx" not in names and are_normals(triple):
            names[first : first + 3] = NORMALS[0]
        elif "red" not in names and _are_colors(triple):
            names[first : first + 3] = COLORS[0]
    return dict(zip(names, table.T, strict=True))


def are_normals(vectors: np.ndarray) -> bool:
    """Whether at least 99 in 100 of some vectors (N, 3) are of unit length to one percent, or zero, not all zero."""
    with np.errstate(over="ignore", invalid="ignore"):
        length = np.linalg.norm(vectors, axis=1)
    is_unit = np.abs(length - 1) < 0.01
    return bool(is_unit.any() and (is_unit | (length == 0)).mean() >= 0.99)


def unit(vectors: np.ndarray) -> np.ndarray:
    """(N, 3) vectors of unit length in float64; zero where they were zero or not finite."""
    vectors = np.where(np.isfinite(vectors).all(axis=1, keepdims=True), vectors, 0.0).astype(np.float64)
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    scaled = vectors / np.where(largest > 0, largest, 1.0)  # lest the squares overflow or vanish
    length = np.linalg.norm(scaled, axis=1, keepdims=True)
    is_unit = np.abs(length * largest - 1) < UNIT
    return np.where(is_unit, vectors, scaled / np.where(length > 0, length, 1.0))


def unit_colors(colors: np.ndarray) -> np.ndarray:
    """(N, 3) colours in [0, 1], float32, from bytes, 16 bits, or numbers whose scale their maximum tells."""
    if colors.dtype in (np.uint8, np.uint16):
        scale = np.iinfo(colors.dtype).max
    else:
        colors = np.where(np.isfinite(colors), colors, 0)
        scale = next((top for top in (1, 255, 65535) if colors.max() <= top), colors.max())
    return np.clip(colors / np.float64(scale), 0, 1).astype(np.float32)


def tensor(values: np.ndarray) -> Tensor:
    """The same numbers in a tensor of their own, in a type that torch can index."""
    code = values.dtype.str[1:]
    if code == "u8":
        code = "i8" if values.size == 0 or values.max() < 1 << 63 else "f8"
    return torch.from_numpy(np.array(values, dtype=f"={_SIGNED.get(code, code)}", order="C"))


def array(values: Tensor) -> np.ndarray:
    """The same numbers in an array, in a type that files know: half precision becomes single, true becomes one."""
    if values.dtype in (torch.float16, torch.bfloat16):
        values = values.float()
    if values.dtype == torch.bool:
        values = values.to(torch.uint8)
    return values.detach().cpu().numpy()


def shown(names: Iterable[str]) -> str:
    """Names for a message, not too many."""
    text = ", ".join(names)
    return text if len(text) <= 80 else text[:77] + "..."


def _take(columns: Columns, choices: tuple[tuple[str, str, str], ...]) -> np.ndarray | None:
    """(N, 3) the first triple that is there, whatever the case of its names; it leaves the columns."""
    spelled = {name.lower(): name for name in reversed(columns)}
    for names in choices:
        if all(name in spelled for name in names):
            return np.stack([columns.pop(spelled[name]) for name in names], axis=1)
    return None


def _are_colors(triples: np.ndarray) -> bool:
    low, high = triples.min(), triples.max()  # not a number if one of them is not
    return bool(low >= 0 and (high <= 1 or (high <= 255 and (triples == np.round(triples)).all())))


def _color_bytes(colors: np.ndarray) -> np.ndarray:
    """The colours as bytes, or as they are where bytes would not give them back."""
    rounded = np.round(np.clip(np.nan_to_num(colors), 0, 1) * 255).astype(np.uint8)
    return rounded if np.array_equal(unit_colors(rounded), colors) else colors
