"""One process's share of an evaluation: the method, the pairs, and rows for a batch of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from p2plane.data.pair import PairBatch, collate
from p2plane.data.pairs import PairDataset
from p2plane.evaluation import testsets
from p2plane.evaluation.contender import Contender, open_contender
from p2plane.evaluation.rows import measured_row
from p2plane.solve.alignment import Alignment

NETWORK_BATCH = 8


@dataclass(frozen=True)
class Evaluation:
    """What is run over what: all that the numbers depend on."""

    method: str
    """The path of a weights file, or the name of a method."""
    data: str
    """The name of a test set."""
    changes: tuple[str, ...] = ()
    """Settings of the method that should differ from its own, such as "head.head=plane"."""
    pairs: int | None = None
    """The first so many of the test set; None for all."""
    points: int | None = None
    """Drawn for each side of a pair; None for what the protocol says."""
    batch: int | None = None
    """Pairs at once; None for 8 with a network, and one with any other method."""
    seed: int = 0
    """Of the pairs, and of what the method draws."""
    root: str | None = None
    """Of the data; None for P2PLANE_DATA, then the cache."""
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("pairs", "batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        testsets.pair_settings(self.data, self.points)


@dataclass(frozen=True)
class Worker:
    """The method and the pairs of an evaluation, opened."""

    evaluation: Evaluation
    contender: Contender
    pairs: PairDataset

    @staticmethod
    def start(evaluation: Evaluation) -> Worker:
        """Open both."""
        contender = open_contender(evaluation.method, evaluation.changes)
        if contender.learned:
            contender.method.to(evaluation.device)  # type: ignore[attr-defined]
        seed, points, root = evaluation.seed, evaluation.points, evaluation.root
        pairs = testsets.open_test_set(evaluation.data, seed=seed, points=points, root=root)
        return Worker(evaluation, contender, pairs)

    @property
    def batch_size(self) -> int:
        """Pairs that go through the method together."""
        return self.evaluation.batch or (NETWORK_BATCH if self.contender.learned else 1)

    @property
    def count(self) -> int:
        """How many pairs are run."""
        return min(self.evaluation.pairs or len(self.pairs), len(self.pairs))

    def settings(self) -> dict[str, Any]:
        """All that the numbers depend on, for the record."""
        from p2plane import __version__

        data = testsets.described(self.evaluation.data, self.evaluation.points) | {"available": len(self.pairs)}
        return {
            **self.contender.identity,
            "data": data,
            "pairs": self.count,
            "batch": self.batch_size,
            "seed": self.evaluation.seed,
            "device": self.evaluation.device,
            "p2plane": __version__,
        }

    @torch.no_grad()
    def rows(self, batch: Sequence[int]) -> list[dict[str, Any]]:
        """The rows of some pairs, which go through the method together."""
        pairs = [self.pairs[index] for index in batch]
        clouds = collate(pairs).to(self.evaluation.device)
        start = time.perf_counter()
        alignment = self._aligned(clouds, batch[0])
        poses, converged = alignment.T_target_source.cpu(), alignment.converged.tolist()
        seconds = (time.perf_counter() - start) / len(batch)
        outcomes = zip(batch, pairs, poses, converged, strict=True)
        return [measured_row(index, pair, pose, reached, seconds) for index, pair, pose, reached in outcomes]

    def _aligned(self, clouds: PairBatch, first: int) -> Alignment:
        masks = {
            f"{side}_mask": None if mask.all() else mask
            for side, mask in (("source", clouds.source_mask), ("target", clouds.target_mask))
        }
        # A generator of the batch's own: neither the order of batches nor the number of processes matters.
        generator = torch.Generator(self.evaluation.device).manual_seed(1_000_003 * self.evaluation.seed + first)
        clouds_and_normals = clouds.source, clouds.target, clouds.source_normals, clouds.target_normals
        return self.contender.method(*clouds_and_normals, **masks, generator=generator)
