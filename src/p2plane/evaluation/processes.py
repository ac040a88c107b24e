"""Batches over several processes of one thread each, or one after the other in this one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from p2plane.evaluation.worker import Evaluation, Worker
from p2plane.work.engine import TRIES, results_of
from p2plane.work.processes import Processes, one_thread

Rows = list[dict[str, Any]]


def rows_of_batches(worker: Worker, batches: Iterable[Sequence[int]], processes: int) -> Iterator[Rows]:
    """The rows of each batch, as batches are done; the numbers do not depend on the number of processes."""
    if processes == 1:
        for batch in batches:
            with one_thread():
                rows = worker.rows(batch)
            yield rows
        return
    with Processes(_Opening(worker.evaluation), processes) as engine:
        yield from results_of(engine, batches, _refuse)


@dataclass(frozen=True)
class _Opening:
    evaluation: Evaluation

    def __call__(self) -> Callable[[Sequence[int]], Rows]:
        return Worker.start(self.evaluation).rows


def _refuse(batch: Sequence[int]) -> Rows:
    raise RuntimeError(
        f"{TRIES} processes were killed while they were on pairs {batch[0]} to {batch[-1]}: is there memory enough?"
    )
