"""Every page of the documentation runs from top to bottom, and prints what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from p2plane.data.catalog import CATALOG
from p2plane.methods import METHODS
from p2plane.networks.registry import CONFIGS, MODELS
from tests.blocks import Block, blocks_of, run

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if blocks_of(page)]


@pytest.fixture(autouse=True)
def _registries_stay_as_they_were() -> Iterator[None]:
    registries: tuple[dict, ...] = (CATALOG, CONFIGS, METHODS, MODELS)
    before = [dict(registry) for registry in registries]
    yield
    for registry, content in zip(registries, before, strict=True):
        registry.clear()
        registry.update(content)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names: dict = {}
    for block in blocks_of(page):
        run(block, names)


@pytest.mark.parametrize(
    ("language", "text", "message"),
    [
        ("python", "print(1 + 1)  # -> 3", "expected: 3\ngot: 2"),
        ("python", "raise ValueError('wrong')", "wrong"),
        ("console", "$ p2plane --version\np2plane one", "expected: p2plane one"),
        ("console", "$ p2plane info missing.ply", "ended with 2"),
        ("sh", "p2plane register a.ply b.ply --nonsense", "--nonsense"),
        ("toml", "loss = 'nonsense'", "must have model"),
    ],
)
def test_a_block_that_is_not_true_is_found(
    language: str, text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception, match=message):
        run(Block(Path("page.md"), 1, language, None, text), {})


def test_no_language_is_left_out() -> None:
    known = {"python", "console", "sh", "toml", "text", "mermaid"}
    for page in PAGES:
        for block in blocks_of(page):
            assert block.language in known, block


def test_how_to_add_something_is_said_in_under_thirty_lines() -> None:
    blocks = blocks_of(DOCS / "contributing.md", "python")
    assert len(blocks) >= 4
    for block in blocks:
        assert len(block.text.splitlines()) < 30, block
