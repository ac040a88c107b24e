"""The two scans that come with the package: views of a made-up room, as a depth camera would take them.

``python -m p2plane.demo.scans`` makes the files anew.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from p2plane.data.io import save_cloud
from p2plane.data.room import scan_room
from p2plane.geometry import se3, so3

POINTS = 20_000


def demo_scans() -> tuple[Path, Path, Tensor]:
    """The files of the source and the target, and the true T_target_source (4, 4)."""
    folder = Path(str(resources.files("p2plane.demo") / "files"))
    T_true = torch.from_numpy(np.loadtxt(folder / "T_target_source.txt"))
    return folder / "source.ply", folder / "target.ply", T_true


def make(folder: Path) -> None:
    """Scan the room from two places: the target in the frame of the room, the source in one of its own."""
    folder.mkdir(exist_ok=True)
    source, T_room_source = scan_room((3.8, 2.4, 1.9), (0.6, 1.1, 0.5), POINTS, seed=1)
    target, T_room_target = scan_room((2.6, 3.9, 1.9), (1.2, 0.5, 0.6), POINTS, seed=2)
    T_file_source = se3.from_rotation_translation(
        so3.exp(torch.tensor([2.1, -0.9, 1.2], dtype=torch.float64)), torch.tensor([5.0, -3.0, 8.0]).double()
    )
    T_target_source = T_room_source @ np.linalg.inv(T_file_source.numpy())
    save_cloud(folder / "source.ply", source.moved(T_file_source))
    save_cloud(folder / "target.ply", target.moved(torch.from_numpy(T_room_target)))
    np.savetxt(folder / "T_target_source.txt", T_target_source, fmt="%.12f")


if __name__ == "__main__":
    make(Path(__file__).parent / "files")
