"""Where a command writes to, asked before its work rather than after it."""

from __future__ import annotations

import os
from pathlib import Path


def require_folder_of(path: Path | None) -> None:
    """Refuse a file that cannot be written."""
    if path is not None and not _can_write(path.parent):
        raise ValueError(f"{path} cannot be written: {path.parent} is no folder that can be written to")


def make_folder(path: Path) -> None:
    """Make a folder unless it is there; refuse one that cannot be written to."""
    path.mkdir(parents=True, exist_ok=True)
    if not _can_write(path):
        raise ValueError(f"{path} must be a folder that can be written to, but it is not")


def _can_write(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK)
