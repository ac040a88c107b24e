"""`register`: two scans in, one pose out, and how far it can be trusted."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from p2plane.registration.answer import Search
from p2plane.registration.knowledge import knowledge_from, may_be_centered, names_of
from p2plane.registration.proposals import plan
from p2plane.registration.result import Registration
from p2plane.registration.scan import prepare
from p2plane.solve.inputs import Array


def register(
    source: Any,
    target: Any,
    *,
    method: str = "auto",
    initial: Array | None = None,
    initial_covariance: Array | None = None,
    hold: Sequence[str] = (),
    max_points: int = 200_000,
    time_limit: float | None = None,
    seed: int = 0,
) -> Registration:
    """The rigid motion that brings one scan onto another, wherever they lie and however they are turned.

    Both are cleaned and thinned, normals are estimated where there are none, a global search proposes poses, robust
    ICP on the planes of both refines them, and the best is checked.

    Args:
        source: a file, an array or tensor (N, 3), a `Cloud`, or an Open3D point cloud; any size, unit and place.
        target: likewise, in the same unit.
        method: who proposes poses. "auto" asks one after the other until the check is content; "initial" refines the
            initial pose alone; otherwise the name of a method (`p2plane methods`).
        initial: (4, 4) a first guess of T_target_source, which is tried too; the identity if there is none.
        initial_covariance: (6, 6) how sure that guess is, in the coordinates (omega, v). Then it counts as a
            measurement, and poses far from it are not considered.
        hold: directions that keep the value they have in `initial`, as in `point_to_plane`.
        max_points: larger clouds are thinned to so many.
        time_limit: seconds after which nobody else is asked; the best so far is returned.
        seed: of what is random.

    Returns:
        A `Registration`. Where neither the scans nor what is known determine the answer, it is not confident and says
        what is open.
    """
    if not isinstance(max_points, int) or max_points < 1:
        raise ValueError(f"max_points must be a positive integer, got {max_points!r}")
    if time_limit is not None and not time_limit > 0:
        raise ValueError(f"time_limit must be positive, got {time_limit!r}")
    hold = names_of(hold)
    opinions = plan(method)
    clock = _Clock()
    with clock.stage("prepare"):
        centered = may_be_centered(hold)
        moving = prepare("source", source, max_points, centered=centered)
        fixed = prepare("target", target, max_points, centered=centered)
        search = Search(moving, fixed, knowledge_from(initial, initial_covariance, hold, moving, fixed))
    for opinion in opinions:
        with clock.stage(opinion.stage):
            proposals = opinion.propose(search.source, search.target, search.knowledge, seed)
        with clock.stage("weigh"):
            search.weigh(opinion.origin, proposals)
        with clock.stage("refine"):
            answer = search.answer()
        if answer.is_convincing or (time_limit is not None and clock.total() >= time_limit):
            break
    return answer.result(dict(clock.seconds))


class _Clock:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def total(self) -> float:
        return sum(self.seconds.values())
