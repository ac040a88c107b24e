"""The extra that Parquet files need."""

from __future__ import annotations


def import_pyarrow() -> None:
    """Ask for the extra before any work is done."""
    try:
        import pyarrow  # type: ignore[import-untyped]  # noqa: F401
    except ImportError as error:
        raise ImportError("Parquet files need pyarrow: pip install 'p2plane[parquet]'") from error
