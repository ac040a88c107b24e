"""What a worker does with a pair, wherever it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from p2plane.batch.pairs import PairFiles
from p2plane.batch.rows import failed_row, row_of
from p2plane.solve.inputs import free_directions


@dataclass(frozen=True)
class BatchSettings:
    """How each pair is registered, as in `register`."""

    method: str = "auto"
    hold: tuple[str, ...] = ()
    max_points: int = 200_000
    time_limit: float | None = None
    seed: int = 0
    """Each pair has its own, made of this one and its place in the list."""

    def __post_init__(self) -> None:
        from p2plane.registration.proposals import plan

        plan(self.method)  # refuses what is not known
        free_directions(self.hold)
        if not isinstance(self.max_points, int) or self.max_points < 1:
            raise ValueError(f"max_points must be a positive integer, got {self.max_points!r}")
        if self.time_limit is not None and not self.time_limit > 0:
            raise ValueError(f"time_limit must be positive, got {self.time_limit!r}")


@dataclass(frozen=True)
class Registering:
    """The work on pairs, to be opened in each worker."""

    settings: BatchSettings

    def __call__(self) -> Callable[[PairFiles], dict[str, Any]]:
        return self.row

    def row(self, pair: PairFiles) -> dict[str, Any]:
        """The row of a pair; if it fails, whatever the reason, the row says why."""
        try:
            return row_of(pair, self._registered(pair))
        except Exception as error:
            said = " ".join(str(error).split())
            expected = isinstance(error, ValueError | OSError | ImportError) and said
            return failed_row(pair, said if expected else f"{type(error).__name__}: {said}")

    def _registered(self, pair: PairFiles) -> Any:
        from p2plane.registration.pipeline import register
        from p2plane.registration.summary import load_pose

        settings = self.settings
        return register(
            pair.path(pair.source),
            pair.path(pair.target),
            method=settings.method,
            initial=load_pose(pair.path(pair.initial)) if pair.initial else None,
            hold=settings.hold,
            max_points=settings.max_points,
            time_limit=settings.time_limit,
            seed=1_000_003 * settings.seed + pair.index,
        )
