"""What was tried and what happened, as a table."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

HEAD = """# Faults and abuse

`make torture` kills, starves, lies to and attacks p2plane, and checks what comes of it. Every line below is a test: it
fails where a row is lost or doubled, where something half-written is left, where an error is not one of ours, where a
pose is not finite, a number is NaN or a confident answer is wrong, and where code from a file is run or anything is
written outside the target. Energies and eigenvalues may be infinite where they are too large for float32, and `icp`
without a robust kernel may follow a single point that is 1e30 away, or go astray between two clusters 1e8 apart, if it
says that directions are undetermined.
`make torture TABLE=docs/torture.md` writes this page.
"""


@dataclass
class Table:
    """Rows by section, in the order in which they came."""

    sections: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def add(self, section: str, tried: str, happened: str) -> None:
        """One more row."""
        self.sections.setdefault(section, []).append((tried, happened))

    def page(self) -> str:
        """The page of the documentation."""
        system = f"Python {platform.python_version()}, torch {torch.__version__}, {platform.system()}"
        return "\n".join([HEAD, f"The last run was with {system}.", "", *self._lines()])

    def _lines(self) -> Iterator[str]:
        for section, rows in self.sections.items():
            yield from (f"## {section}", "", "| what was tried | what happened |", "| --- | --- |")
            yield from (f"| {_cell(tried)} | {_cell(happened)} |" for tried, happened in rows)
            yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
