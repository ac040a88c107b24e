"""The site builds without a warning, asks no other server for anything, and shows every public name."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import p2plane
from tests.blocks import blocks_of

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    pytest.importorskip("mkdocs", reason="the site needs pip install 'p2plane[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    shown = _shown(site)
    assert _public() - shown == set()


def test_every_name_that_a_page_imports_is_in_the_reference(site: Path) -> None:
    shown = _shown(site)
    imported = {name for page in PAGES for block in blocks_of(page, "python") for name in _imported(block.text)}
    assert imported - shown == set()


def test_no_page_asks_another_server(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r"<(?:script|img|iframe)[^>]*\ssrc=\"?(\S+)|<link[^>]*\shref=\"?(\S+)", page.read_text())
        for address in (one or other for one, other in loaded):
            assert not address.strip('">').startswith(("http:", "https:", "//")), f"{page.name} loads {address}"


def test_every_formula_is_drawn(site: Path) -> None:
    page = (site / "mathematics.html").read_text()
    assert page.count("<math") > 20
    assert "arithmatex" not in page


@pytest.mark.parametrize("name", [name for name in p2plane.__all__ if inspect.isfunction(getattr(p2plane, name))])
def test_a_public_function_says_its_shapes(name: str) -> None:
    """In its own words, or by pointing to the function whose words hold; those that take files have none."""
    text = inspect.getdoc(getattr(p2plane, name)) or ""
    shapes = r"\(\.\.\., |\(N, 3\)|\(4, 4\)|arguments as in `|Arguments, result and gradient as in `"
    assert re.search(shapes, text) or name in ("load_cloud", "register_many")


@pytest.mark.parametrize("name", ["point_to_plane", "point_to_distribution", "plane_to_plane", "implicit_pose"])
def test_the_layer_says_what_is_differentiable(name: str) -> None:
    assert "radient" in (inspect.getdoc(getattr(p2plane, name)) or "")


def _public() -> set[str]:
    """What packages list as theirs, by the full names of where it is defined."""
    packages = [p2plane, *map(importlib.import_module, _packages())]
    listed = [getattr(package, name) for package in packages for name in getattr(package, "__all__", ())]
    return {_full_name(each) for each in listed} - {"p2plane.cli.main.main"}


def _packages() -> list[str]:
    return [each.name for each in pkgutil.walk_packages(p2plane.__path__, "p2plane.") if each.ispkg]


def _imported(text: str) -> set[str]:
    """Full names of what a block imports from p2plane."""
    names: set[str] = set()
    for statement in ast.walk(ast.parse(text)):
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("p2plane"):
            module = importlib.import_module(statement.module or "")
            for alias in statement.names:
                value = getattr(module, alias.name)
                names.add(_full_name(value) if hasattr(value, "__name__") else f"{module.__name__}.{alias.name}")
    return names


def _full_name(value: Any) -> str:
    return value.__name__ if isinstance(value, ModuleType) else f"{value.__module__}.{value.__qualname__}"


def _shown(site: Path) -> set[str]:
    """The names of the reference, from the inventory that is built with it."""
    lines = (site / "objects.inv").read_bytes().split(b"\n", 4)
    return {line.split()[0] for line in zlib.decompress(lines[4]).decode().splitlines()}
