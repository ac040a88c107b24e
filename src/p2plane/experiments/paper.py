"""The paper's own numbers, from the one file that holds them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from p2plane.training.files import read_config


@cache
def paper() -> dict[str, Any]:
    """Everything in ``paper.toml``."""
    return read_config(Path(__file__).with_name("paper.toml"))


def paper_row(table: str, row: str) -> list[float] | None:
    """The eight numbers of a row; None where the paper has none."""
    return paper().get(table, {}).get(row)
