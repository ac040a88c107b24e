"""Processes of one thread each on this machine; one that is killed is replaced."""

from __future__ import annotations

import os
import pickle
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any

import torch

from p2plane.work.engine import OpenWork, Outcome

AHEAD = 2
"""Items that a worker has at once: it need not wait for the next while the result of the last is written down."""
STILLBORN = 20
"""So many workers in a row may be killed before they can begin."""
_READY = b"ready"


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def one_thread() -> Iterator[None]:
    """As in a worker, so that the numbers are the same to the last bit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Processes:
    """An `Engine` of so many processes."""

    def __init__(self, open_work: OpenWork, processes: int) -> None:
        self._open_work, self._processes = open_work, processes
        self._crew: list[_Member] = []
        self._outcomes: deque[Outcome | Exception] = deque()
        self._stillborn = 0  # workers in a row that were killed before they could begin

    @property
    def capacity(self) -> int:
        return AHEAD * self._processes

    def __enter__(self) -> Processes:
        self._crew = [_Member(self._open_work) for _ in range(self._processes)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self._crew:
            member.end()

    def submit(self, item: Any) -> None:
        min(self._crew, key=lambda member: len(member.items)).send(item)

    def next(self) -> Outcome:
        while not self._outcomes:
            connections = {member.connection: member for member in self._crew}
            for connection in wait(list(connections)):
                self._hear(connections[connection])  # type: ignore[index]
        outcome = self._outcomes.popleft()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _hear(self, member: _Member) -> None:
        try:
            message = member.connection.recv_bytes()
        except (EOFError, OSError):
            self._replace(member)
            return
        if message == _READY:
            member.is_ready = True
            return
        result = pickle.loads(message)
        item = member.items.popleft() if member.is_ready else None
        self._outcomes.append(result if isinstance(result, Exception) else Outcome(item, result))

    def _replace(self, member: _Member) -> None:
        """Put another in its place; the item that it was on is lost, those that it had not begun are not."""
        code = member.end(patience=10.0)
        self._stillborn = 0 if member.is_ready else self._stillborn + 1
        if not member.is_ready and (code >= 0 or self._stillborn > STILLBORN):
            raise RuntimeError(
                f"a worker process ended with code {code} before it could begin; a script that starts workers "
                "needs `if __name__ == '__main__':` around what it does"
            )
        if member.is_ready and member.items:
            self._outcomes.append(Outcome(member.items.popleft(), lost=True))
        successor = _Member(self._open_work)
        for item in member.items:
            successor.send(item)
        self._crew[self._crew.index(member)] = successor


class _Member:
    """A process, and what it has to do; it does one item after the other."""

    def __init__(self, open_work: OpenWork) -> None:
        context = get_context("spawn")  # torch's threads do not survive a fork
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, open_work), daemon=True)
        self.process.start()
        theirs.close()  # so that its death is heard
        self.items: deque[Any] = deque()
        self.is_ready = False

    def send(self, item: Any) -> None:
        self.items.append(item)
        with suppress(OSError):  # dead, as will be heard
            self.connection.send_bytes(pickle.dumps(item))

    def end(self, patience: float = 0.0) -> int:
        """The exit code, negative for a signal; so many seconds are left to end by itself."""
        self.connection.close()
        self.process.join(patience)
        self.process.terminate()
        self.process.join()
        assert self.process.exitcode is not None
        return self.process.exitcode


def _serve(connection: Connection, open_work: OpenWork) -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which the terminal sends to all; the parent decides
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        work = open_on_one_thread(open_work)
        connection.send_bytes(_READY)
        while True:
            connection.send_bytes(pickle.dumps(work(pickle.loads(connection.recv_bytes()))))
    except (EOFError, BrokenPipeError):  # the parent is gone
        return
    except Exception as error:
        connection.send_bytes(_pickled(error))


def open_on_one_thread(open_work: OpenWork) -> Any:
    """The work, in a process that does nothing else."""
    os.environ["OMP_NUM_THREADS"] = "1"  # for libraries that are not loaded yet
    torch.set_num_threads(1)
    return open_work()


def _pickled(error: Exception) -> bytes:
    try:
        content = pickle.dumps(error)
        pickle.loads(content)
    except Exception:  # those with constructors of their own often cannot be pickled
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return content


def _end_with_parent() -> None:
    """A parent that is killed tells its children nothing, and they would work on."""
    from multiprocessing import parent_process

    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
