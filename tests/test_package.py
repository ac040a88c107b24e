"""What is shipped: configs, weights, demo scans and the viewer are in the wheel, and tests and docs in the sdist."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

import p2plane

ROOT = Path(__file__).parents[1]
NEEDED = ("*.toml", "*.safetensors", "*.ply", "*.txt", "*.js", "*.css", "*.html", "py.typed", "weights/README.md")


@pytest.fixture(scope="module")
def builders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A wheel and an sdist, built without an environment of their own."""
    pytest.importorskip("hatchling", reason="building needs pip install 'p2plane[dev]'")
    from hatchling.builders.sdist import SdistBuilder
    from hatchling.builders.wheel import WheelBuilder

    folder = tmp_path_factory.mktemp("dist")
    kinds = {"wheel": WheelBuilder, "sdist": SdistBuilder}
    return {
        name: Path(next(iter(kind(str(ROOT)).build(directory=str(folder), versions=["standard"]))))
        for name, kind in kinds.items()
    }


def test_the_wheel_holds_everything_that_is_read_from_the_package(builders: dict[str, Path]) -> None:
    with zipfile.ZipFile(builders["wheel"]) as wheel:
        names = set(wheel.namelist())
    package = ROOT / "src" / "p2plane"
    for pattern in ("*.py", *NEEDED):
        files = [path for path in package.rglob(pattern) if "__pycache__" not in path.parts]
        assert files, pattern
        assert {path.relative_to(package.parent).as_posix() for path in files} <= names
    assert not any(name.startswith(("tests/", "docs/", "benchmarks/")) for name in names)


def test_the_sdist_holds_what_a_packager_needs(builders: dict[str, Path]) -> None:
    with tarfile.open(builders["sdist"]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    wanted = {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "Makefile", "mkdocs.yml", "pyproject.toml"}
    assert wanted | {"docs/index.md", "examples/register.py", "tests/test_package.py"} <= names
    assert not any(name.startswith((".venv", "results/", "runs/", "site/")) for name in names)


def test_the_version_is_in_the_names_and_in_the_changes(builders: dict[str, Path]) -> None:
    assert all(f"-{p2plane.__version__}" in path.name for path in builders.values())
    assert f"## {p2plane.__version__}" in (ROOT / "CHANGELOG.md").read_text()
