"""Results files as small as can be, to keep in a repository: what follows from the poses is left out and found again.

A compact results file is Parquet without the last rows of the poses, without the errors that follow from the poses,
and without the true poses, which all methods on a test set share: these are in ``truth.parquet`` beside it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from p2plane.evaluation import metrics
from p2plane.evaluation.rows import EULER, POSE, TRANSLATION, TRUE_POSE

Columns = dict[str, np.ndarray]

TRUTH = "truth.parquet"
FOLLOWS = (*EULER, *TRANSLATION, "angle_deg", "length")
LAST_ROW = 12  # of a pose of sixteen numbers, which is 0 0 0 1


def without_what_follows(columns: Columns) -> tuple[Columns, Columns]:
    """What a compact file keeps of some columns, and what goes to the truth."""
    left_out = {*FOLLOWS, *POSE[LAST_ROW:], *TRUE_POSE}
    own = {name: column for name, column in columns.items() if name not in left_out}
    return own, {name: columns[name] for name in ("index", *TRUE_POSE[:LAST_ROW])}


def with_what_follows(columns: Columns, truth: Columns | None, path: Path) -> Columns:
    """All columns again; `truth` is what is in the file beside it, None where there is no such file."""
    columns = dict(columns)
    if TRUE_POSE[0] not in columns:
        columns |= _true_poses(columns["index"], truth, path)
    for names in (POSE, TRUE_POSE):
        for place, name in enumerate(names[LAST_ROW:]):
            columns.setdefault(name, np.full(len(columns["index"]), float(place == 3)))
    if FOLLOWS[0] not in columns:
        columns |= _errors(poses(columns, POSE), poses(columns, TRUE_POSE))
    return columns


def poses(columns: Columns, names: tuple[str, ...]) -> Tensor:
    """(P, 4, 4) float64 poses out of their sixteen columns."""
    return torch.from_numpy(np.stack([columns[name] for name in names], axis=-1)).reshape(-1, 4, 4)


def _true_poses(index: np.ndarray, truth: Columns | None, path: Path) -> Columns:
    if truth is None or not np.isin(index, truth["index"]).all():
        raise ValueError(f"{path.with_name(TRUTH)} must hold the true poses of all pairs of {path.name}, but does not")
    order = np.argsort(truth["index"])
    rows = order[np.searchsorted(truth["index"], index, sorter=order)]
    return {name: truth[name][rows] for name in TRUE_POSE[:LAST_ROW]}


def _errors(T_estimate: Tensor, T_true: Tensor) -> Columns:
    euler, apart = metrics.euler_errors_deg(T_estimate, T_true), (T_estimate - T_true)[:, :3, 3]
    found = [
        *euler.unbind(-1),
        *apart.unbind(-1),
        metrics.rotation_error(T_estimate, T_true).rad2deg(),
        apart.norm(dim=-1),
    ]
    return {name: values.numpy() for name, values in zip(FOLLOWS, found, strict=True)}
