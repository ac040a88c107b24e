"""The log of a run: rows of a CSV file, and the same numbers for TensorBoard."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from p2plane.training.config import MEASURES
from p2plane.training.folder import RunFolder, write_whole

COLUMNS = (
    "step",
    "epoch",
    "minutes",
    "lr",
    "loss",
    "angle_deg",
    "length",
    "gradient",
    "skipped",
    "pairs_per_second",
    *(f"validation_{name}" for name in MEASURES),
)


class Logs:
    """Writes what a run has to say; a resumed run goes on where its checkpoint was, as if there had been no stop.

    Args:
        folder: of the run.
        step: rows of later steps, which come again, are dropped.
    """

    def __init__(self, folder: RunFolder, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        rows = [row for row in read_log(folder) if int(row["step"]) <= step]
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_whole(folder.log, text.getvalue().encode())
        self._file = open(folder.log, "a", newline="")  # noqa: SIM115
        self._table = csv.DictWriter(self._file, COLUMNS, lineterminator="\n")
        self._board = SummaryWriter(str(folder.tensorboard), purge_step=step + 1 if step else None)

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """One row, and one value for each curve."""
        self._table.writerow({"step": step} | {name: f"{value:.6g}" for name, value in numbers.items()})
        self._file.flush()
        for name, value in numbers.items():
            group = "validation/" if name.startswith("validation_") else "training/"
            self._board.add_scalar(group + name.removeprefix("validation_"), value, step)

    def close(self) -> None:
        """Nothing more comes."""
        self._file.close()
        self._board.close()


def read_log(folder: RunFolder) -> list[dict[str, Any]]:
    """The rows of a log; a last one that was cut off is left out."""
    if not folder.log.is_file():
        return []
    text = folder.log.read_text()
    whole = text[: text.rfind("\n") + 1]
    rows = csv.DictReader(io.StringIO(whole))
    return [row for row in rows if None not in row and row.get("step", "").isdigit()]
