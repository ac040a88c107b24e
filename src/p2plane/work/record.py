"""The record beside a file of rows: what they came from, so that a run is gone on with only as it was begun."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from p2plane.work.files import replacing


def record_path(path: Path) -> Path:
    """Where the record of a file of rows is."""
    return path.with_suffix(".json")


def read_record(path: Path) -> dict[str, Any]:
    """The record of a file of rows."""
    record = record_path(path)
    if not record.is_file():
        raise ValueError(f"{record} must be there and say what {path.name} came from, but it is not")
    try:
        content = json.loads(record.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{record} must be JSON, but {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("settings"), dict):
        raise ValueError(f"{record} must hold the settings that {path.name} came from, but there are none")
    return content


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write the record of a file of rows."""
    with replacing(record_path(path)) as temporary:
        temporary.write_text(json.dumps(record, indent=2) + "\n")


def agreed_record(path: Path, settings: dict[str, Any], free: tuple[str, ...] = ()) -> dict[str, Any]:
    """The record to go on with: that of the file, if it is of the same settings but for the free ones."""
    record = read_record(path)
    before, settings = record["settings"], json.loads(json.dumps(settings))  # as the file has them: without tuples
    for name in {**before, **settings}:
        if before.get(name) != settings.get(name) and name not in free:
            raise ValueError(
                f"{path} was begun with {name} = {before.get(name)}, got {settings.get(name)}; "
                "use the same settings, or another file"
            )
    return record | {"settings": settings}


def environment(record: Mapping[str, Any], **how: Any) -> dict[str, Any]:
    """What times depend on, and when the work of a record began."""
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        **how,
        "started": record.get("environment", {}).get("started", now()),
    }


def now() -> str:
    """The time, for people."""
    return time.strftime("%Y-%m-%d %H:%M:%S %z")
