"""Where results are: one folder for each scale, in it one for each test set, in it the files of each row.

::

    results/small/modelnet40-cpu/rpmnet-plane.csv          one row for each pair (or .parquet)
    results/small/modelnet40-cpu/rpmnet-plane.json         what it came from: settings, versions, times, summary
    results/small/modelnet40-cpu/rpmnet-plane.safetensors  the weights that were trained for it
    results/small/modelnet40-cpu/clouds.npz                the pairs that figures show
    results/small/runs/modelnet40-cpu/rpmnet-plane/        the training: config, logs, checkpoints
    results/small/overhead/                                measurements of table 4
    results/small/differentiation/                         measurements of the charts
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from p2plane.data.pairs import PairDataset
from p2plane.evaluation.compact import TRUTH
from p2plane.evaluation.results import SUFFIXES, Results, find_results, make_compact, read_results
from p2plane.evaluation.testsets import open_test_set
from p2plane.experiments.scale import Scale
from p2plane.work.files import replacing
from p2plane.work.record import read_record


class Clouds(NamedTuple):
    """A pair as a figure shows it."""

    source: np.ndarray  # (N, 3)
    target: np.ndarray  # (M, 3)


@dataclass(frozen=True)
class ResultsFolder:
    """The results of one scale.

    `data` is everywhere what a test set stands for in the paper, a key of `Scale.data`.
    """

    root: Path
    scale: Scale

    @property
    def path(self) -> Path:
        """The folder of the scale."""
        return self.root / self.scale.name

    def of(self, data: str) -> Path:
        """The folder of a test set."""
        return self.path / self.scale.data[data]

    def weights(self, data: str, row: str) -> Path:
        """The weights of a row that was trained for a test set."""
        return self.of(data) / f"{row}.safetensors"

    def run(self, data: str, row: str) -> Path:
        """The folder of its training."""
        return self.path / "runs" / self.scale.data[data] / row

    def read(self, data: str, name: str) -> Results | None:
        """The results of a row; None where there are none, or the evaluation was not finished."""
        name = self.scale.same.get(name, name)
        key = data, name
        if key not in self._read:
            path = find_results(self.of(data), name)
            finished = path is not None and "summary" in read_record(path)
            self._read[key] = read_results(path) if path and finished else None
        return self._read[key]

    def forget(self, data: str, name: str) -> None:
        """Look again for the results of a row: they are new."""
        self._read.pop((data, name), None)

    def names(self, data: str) -> list[str]:
        """All rows that have a results file."""
        files = sorted(self.of(data).glob("*")) if self.of(data).is_dir() else []
        own = [path for path in files if path.suffix in SUFFIXES and path.name != TRUTH]
        return [path.stem for path in own if not path.stem.endswith(".partial")]

    def make_compact(self) -> None:
        """Write all finished results anew, so small that they can be kept in a repository."""
        for data in self.scale.data:
            for name in self.names(data):
                results = self.read(data, name)
                if results is not None and results.path.suffix == ".csv":
                    make_compact(results.path)
                    self.forget(data, name)

    def clouds(self, data: str, index: int) -> Clouds | None:
        """A pair of a test set: as it was kept for figures, or made again if the data is there; None without it."""
        kept = self._kept(data)
        if f"source_{index}" in kept:
            return Clouds(kept[f"source_{index}"], kept[f"target_{index}"])
        try:
            return self._made(data, index)
        except FileNotFoundError:
            return None

    def keep(self, data: str, indices: list[int]) -> None:
        """Keep pairs for figures, so that these need no data."""
        kept = dict(self._kept(data))
        missing = [index for index in indices if f"source_{index}" not in kept]
        for index in missing:
            source, target = self._made(data, index)
            kept |= {f"source_{index}": source.astype(np.float16), f"target_{index}": target.astype(np.float16)}
        if missing:
            self.of(data).mkdir(parents=True, exist_ok=True)
            with replacing(self.of(data) / "clouds.npz") as temporary, temporary.open("wb") as file:
                np.savez_compressed(file, **kept)  # type: ignore[arg-type]

    @cached_property
    def _read(self) -> dict[tuple[str, str], Results | None]:
        return {}

    @cached_property
    def _opened(self) -> dict[str, PairDataset]:
        return {}

    def _kept(self, data: str) -> dict[str, np.ndarray]:
        path = self.of(data) / "clouds.npz"
        if not path.is_file():
            return {}
        with np.load(path) as file:
            return {name: file[name].astype(np.float32) for name in file.files}

    def _made(self, data: str, index: int) -> Clouds:
        if data not in self._opened:
            self._opened[data] = open_test_set(self.scale.data[data], points=self.scale.points)
        pair = self._opened[data][index]
        return Clouds(pair.source.numpy(), pair.target.numpy())
