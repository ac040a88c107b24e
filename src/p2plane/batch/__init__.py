"""Many pairs of scans: registered one by one by many processes or machines, a row for each."""

from p2plane.batch.results import BatchResults, PairResult
from p2plane.batch.run import register_many

__all__ = ["BatchResults", "PairResult", "register_many"]
