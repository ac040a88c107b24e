"""The machines of a Ray cluster, or this one under Ray."""

from __future__ import annotations

import pickle
import time
from functools import lru_cache
from types import TracebackType
from typing import Any

from p2plane.work.engine import OpenWork, Outcome, Work
from p2plane.work.processes import AHEAD, open_on_one_thread

LOOK_SECONDS = 5.0
"""How often the cluster is asked for its cores, which may come and go."""


class Ray:
    """An `Engine` on a Ray cluster. Every machine has p2plane, and sees the same files under the same names.

    Args:
        open_work: what a worker calls once.
        address: of the cluster: "auto" for the one that this machine belongs to, "ray://host:10001" for one elsewhere;
            None for a Ray of our own on this machine. A Ray that the caller has begun is used as it is.
        processes: at once; None for as many as the cluster has cores.
    """

    def __init__(self, open_work: OpenWork, address: str | None = None, processes: int | None = None) -> None:
        self._ray = import_ray()
        self._open_work, self._address, self._processes = pickle.dumps(open_work), address, processes
        self._under_way: dict[Any, Any] = {}
        self._is_ours = self._is_ours_alone = False
        self._cores, self._looked = 1, -LOOK_SECONDS

    @property
    def capacity(self) -> int:
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._cores = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
            self._looked = time.monotonic()
        if self._processes is None or self._is_ours_alone:  # which has no more cores than processes
            return AHEAD * self._cores
        return min(self._processes, AHEAD * self._cores)

    def __enter__(self) -> Ray:
        if not self._ray.is_initialized():
            begin_ray(self._address, self._processes)
            self._is_ours, self._is_ours_alone = True, self._address is None
        # Ray's own retries would not tell that a worker died.
        self._task = self._ray.remote(num_cpus=1, max_retries=0)(_apply)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for reference in self._under_way:
            self._ray.cancel(reference, force=True)
        if self._is_ours:
            self._ray.shutdown()

    def submit(self, item: Any) -> None:
        self._under_way[self._task.remote(self._open_work, item)] = item

    def next(self) -> Outcome:
        (reference,), _ = self._ray.wait(list(self._under_way), num_returns=1)
        item = self._under_way.pop(reference)
        try:
            return Outcome(item, self._ray.get(reference))
        except self._ray.exceptions.RayTaskError as error:
            cause = str(error.cause or error).splitlines()[:1]
            raise RuntimeError(f"a worker of Ray could not work: {' '.join(cause)}") from error
        except self._ray.exceptions.RayError:  # the worker or its machine died, or had no memory left
            return Outcome(item, lost=True)


def import_ray() -> Any:
    """Ray, or what to do to have it."""
    try:
        import ray  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise ImportError("engine 'ray' needs Ray: pip install 'p2plane[distributed]'") from error
    return ray


def begin_ray(address: str | None, processes: int | None) -> None:
    """Join a cluster, or begin one on this machine."""
    ray, settings = import_ray(), {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address is None:
            ray.init(address="local", num_cpus=processes, include_dashboard=False, **settings)
        else:
            ray.init(address=address, **settings)
    except ConnectionError as error:
        raise ConnectionError(f"there is no Ray cluster at {address!r}: {error}") from error


def _apply(open_work: bytes, item: Any) -> Any:
    return _opened(open_work)(item)


@lru_cache(maxsize=1)
def _opened(open_work: bytes) -> Work:
    return open_on_one_thread(pickle.loads(open_work))
