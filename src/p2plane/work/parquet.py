"""The extra that Parquet files need, and what a broken one leads to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def import_pyarrow() -> None:
    """Ask for the extra before any work is done."""
    try:
        import pyarrow  # type: ignore[import-untyped]  # noqa: F401
    except ImportError as error:
        raise ImportError("Parquet files need pyarrow: pip install 'p2plane[parquet]'") from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Whatever Arrow says of a broken file becomes a ValueError that names it; errors of the disk stay theirs."""
    from pyarrow import ArrowException

    try:
        yield
    except (ArrowException, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"{path} must be a Parquet file of results, but {error}") from error
