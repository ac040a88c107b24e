"""Results files with errors that are known beforehand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from p2plane.evaluation.results import Results, read_results
from p2plane.evaluation.rows import COLUMNS
from p2plane.geometry import se3, so3
from p2plane.work.journal import Journal
from p2plane.work.record import write_record


def write_made_up(
    path: Path, angles_deg: list[float], chamfer: list[float] | None = None, converged: list[int] | None = None
) -> Results:
    """Results whose poses are off by these angles about z, and by as many hundredths along x."""
    angles = torch.tensor(angles_deg, dtype=torch.float64)
    T_true = se3.random(len(angles), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    turn = so3.exp(torch.deg2rad(angles)[:, None] * torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64))
    off = se3.from_rotation_translation(turn, angles[:, None] * torch.tensor([0.01, 0, 0], dtype=torch.float64))
    rows = []
    for i, (T, true) in enumerate(zip(off @ T_true, T_true, strict=True)):
        row: dict = dict.fromkeys(COLUMNS, 0.0) | {"index": i, "flags": "", "seconds": 0.25}
        row |= {f"T_{r}{c}": float(T[r, c]) for r in range(4) for c in range(4)}
        row |= {f"true_{r}{c}": float(true[r, c]) for r in range(4) for c in range(4)}
        row |= {"angle_deg": abs(angles_deg[i]), "chamfer": (chamfer or np.abs(angles_deg))[i]}
        row["converged"] = converged[i] if converged else 1
        rows.append(row)
    path.parent.mkdir(parents=True, exist_ok=True)
    journal = Journal(path, COLUMNS, len(rows), digits=9)
    journal.append(rows)
    journal.close()
    settings = {"method": path.stem, "seed": 0, "batch": 1, "pairs": len(rows), "data": {"name": "made-up"}}
    write_record(path, {"settings": settings, "summary": {}})
    return read_results(path)
