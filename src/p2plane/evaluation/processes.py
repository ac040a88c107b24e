"""Batches over several processes of one thread each, or one after the other in this one."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from p2plane.evaluation.worker import Evaluation, Worker

Rows = list[dict[str, Any]]


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def rows_of_batches(worker: Worker, batches: Sequence[Sequence[int]], processes: int) -> Iterator[Rows]:
    """The rows of each batch, as batches are done; the numbers do not depend on the number of processes."""
    if min(processes, len(batches)) <= 1:
        for batch in batches:
            with _one_thread():
                rows = worker.rows(batch)
            yield rows
        return
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    context = get_context("spawn")  # torch's threads do not survive a fork
    with ProcessPoolExecutor(processes, context, _start, (worker.evaluation,)) as pool:
        futures = [pool.submit(_rows, batch) for batch in batches]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


_worker: Worker  # of a process of the pool


def _start(evaluation: Evaluation) -> None:
    global _worker
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _worker = Worker.start(evaluation)


def _rows(batch: Sequence[int]) -> Rows:
    return _worker.rows(batch)


def _end_with_parent() -> None:
    """A parent that is killed tells its children nothing, and they would wait for ever."""
    from multiprocessing import parent_process

    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def _one_thread() -> Iterator[None]:
    """As in a process of the pool, so that the numbers are the same to the last bit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
