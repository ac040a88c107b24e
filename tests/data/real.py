"""Where real data lies, if it is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("P2PLANE_DATA", "no such folder"))


def needs(name: str) -> pytest.MarkDecorator:
    """Skip a test without the folder `name` in P2PLANE_DATA."""
    return pytest.mark.skipif(not (ROOT / name).is_dir(), reason=f"P2PLANE_DATA holds no {name}")
