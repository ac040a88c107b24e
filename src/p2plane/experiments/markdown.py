"""The page as Markdown, as GitHub shows it."""

from __future__ import annotations

from p2plane.experiments.blocks import Block, Cell, Figure, Table
from p2plane.experiments.page import Page

BEST = "★"


def markdown(page: Page) -> str:
    """The text of the page."""
    parts = [f"# {page.title}", page.introduction]
    for section in page.sections:
        parts.append(f"## {section.experiment.title} ({section.experiment.reference})")
        parts += [_block(page, block) for block in section.blocks]
    parts += ["## Settings, versions and times", *(_block(page, block) for block in page.settings)]
    return "\n\n".join(parts) + "\n"


def _block(page: Page, block: Block) -> str:
    if isinstance(block, Table):
        return _table(page, block)
    if isinstance(block, Figure):
        sources = ", ".join(f"[{source.name}]({page.link(source)})" for source in block.sources)
        return f"![{block.name}]({page.picture(block)})\n\n{block.caption} From {sources}."
    return block.text


def _table(page: Page, table: Table) -> str:
    lines = [table.header, tuple("---" for _ in table.header)]
    lines += [tuple(_cell(page, cell) for cell in row) for row in table.rows]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{table.caption}\n\n{text}" if table.caption else text


def _cell(page: Page, cell: Cell) -> str:
    text = f"[{cell.text}]({page.link(cell.source)})" if cell.source else cell.text
    text = _marked(text, cell.bold, cell.best)
    if not cell.below:
        return text
    return f"{text}<br><sub>{_marked(cell.below, cell.below_bold, cell.below_best)}</sub>"


def _marked(text: str, bold: bool, best: bool) -> str:
    text = f"**{text}**" if bold else text
    return f"{text} {BEST}" if best else text
