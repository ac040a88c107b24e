"""Where work is done, as one small interface; and a list of items done there, whatever befalls the workers."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, NamedTuple, Protocol

Work = Callable[[Any], Any]
"""From an item to its result."""
OpenWork = Callable[[], Work]
"""What a worker calls once, to make ready; it can be pickled."""

TRIES = 4
"""An item is given up after it was on so many workers when they died."""


class Outcome(NamedTuple):
    """What became of an item."""

    item: Any
    result: Any = None
    lost: bool = False
    """Whether the worker died on it."""


class Engine(Protocol):
    """Workers of one thread each. An exception of the work is raised where its outcome is asked for."""

    @property
    def capacity(self) -> int:
        """So many items may be under way at once."""

    def submit(self, item: Any) -> None:
        """Send an item to a worker."""

    def next(self) -> Outcome:
        """Wait for an item that is under way."""

    def __enter__(self) -> Engine: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def results_of(engine: Engine, items: Iterable[Any], given_up: Callable[[Any], Any]) -> Iterator[Any]:
    """The result of each item, as they are done; items are taken from the list only as workers want them.

    An item whose worker died is tried again after all others, so that it holds up nobody.

    Args:
        engine: which does the work; it is open.
        items: that can be hashed.
        given_up: the result of an item that no worker survived.
    """
    fresh, again, deaths = iter(items), deque[Any](), Counter[Any]()
    under_way, is_more = 0, True
    while is_more or again or under_way:
        while under_way < engine.capacity and (is_more or again):
            item = next(fresh, None) if is_more else again.popleft()
            if item is None:
                is_more = False
                continue
            engine.submit(item)
            under_way += 1
        if not under_way:
            return
        outcome = engine.next()
        under_way -= 1
        if not outcome.lost:
            yield outcome.result
            continue
        deaths[outcome.item] += 1
        if deaths[outcome.item] < TRIES:
            again.append(outcome.item)
        else:
            yield given_up(outcome.item)
