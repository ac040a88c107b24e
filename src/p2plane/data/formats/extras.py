"""Libraries that only some formats need, imported when such a file comes."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def needed(module: str, files: str, extra: str) -> ModuleType:
    """The module, or an ImportError that names the remedy."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{files} files need the module {module}: pip install 'p2plane[{extra}]'") from error
