"""The row of a pair: where it came from, the pose and how far it can be trusted, or why there is none."""

from __future__ import annotations

from typing import Any

from p2plane.batch.pairs import PairFiles
from p2plane.registration.result import Registration

POSE = tuple(f"T_{row}{column}" for row in range(4) for column in range(4))
INFORMATION = tuple(f"information_{row}{column}" for row in range(6) for column in range(row, 6))
MEASURES = ("confidence", "fitness", "inlier_rmse", "plane_rmse", "normal_agreement", "inlier_distance")

KINDS: dict[str, type] = {
    "index": int,
    "source": str,
    "target": str,
    "error": str,
    "confident": bool,
    **dict.fromkeys((*MEASURES, *POSE, *INFORMATION), float),
    "undetermined": str,
    "warnings": str,
}
"""What each column holds. Numbers are absent where a pair failed, which its error explains. There are no times among
them: a row depends on its pair and the settings alone."""


def row_of(pair: PairFiles, registration: Registration) -> dict[str, Any]:
    """The row of a pair that was registered."""
    pose = registration.T_target_source.flatten().tolist()
    matrix = registration.information.tolist()
    information = [matrix[row][column] for row in range(6) for column in range(row, 6)]
    return {
        **_names(pair),
        "error": "",
        "confident": registration.confident,
        **{name: float(getattr(registration, name)) for name in MEASURES},
        **dict(zip(POSE, pose, strict=True)),
        **dict(zip(INFORMATION, information, strict=True)),
        "undetermined": "; ".join(registration.undetermined),
        "warnings": "; ".join(registration.warnings),
    }


def failed_row(pair: PairFiles, error: str) -> dict[str, Any]:
    """The row of a pair that could not be registered."""
    nothing = {name: "" if kind is str else None for name, kind in KINDS.items()}
    return {**nothing, **_names(pair), "error": error}


def _names(pair: PairFiles) -> dict[str, Any]:
    return {"index": pair.index, "source": pair.source, "target": pair.target}
