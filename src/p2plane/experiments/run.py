"""`reproduce`: run what is missing, then make the page from the results files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from p2plane.experiments.catalogue import ALL, experiments_of
from p2plane.experiments.folder import ResultsFolder
from p2plane.experiments.page import write_page
from p2plane.experiments.perform import Options, perform
from p2plane.experiments.scale import scale_of


@dataclass(frozen=True)
class Reproduction:
    """What came of it."""

    html: Path
    markdown: Path
    problems: list[str]
    """What could not be run, and why."""


def reproduce(
    name: str,
    scale: str,
    results: Path,
    *,
    out: Path | None = None,
    run: bool = True,
    compact: bool = False,
    options: Options | None = None,
) -> Reproduction:
    """A table or figure of the paper, or all of them, as a page.

    Args:
        name: of an experiment, or "all".
        scale: "full", "small" or "smoke".
        results: the folder of results; what is there already is not run again.
        out: where the page goes; the folder of the scale where it is not given.
        run: whether what is missing is run; without, the page says that it was not.
        compact: whether results files are written anew as small Parquet files, to keep in a repository.
        options: how to run.
    """
    experiments, folder = experiments_of(name), ResultsFolder(results, scale_of(scale))
    if not run and not folder.path.is_dir():
        raise FileNotFoundError(f"there are no results in {folder.path}")
    problems = perform(experiments, folder, options or Options()) if run else []
    if compact:
        folder.make_compact()
    page = "results" if name == ALL else name
    html, markdown = write_page(experiments, folder, out or folder.path, page, problems)
    return Reproduction(html, markdown, problems)
