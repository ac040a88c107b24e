"""The page as one HTML file with its pictures inside, to pass on."""

from __future__ import annotations

import base64
from html import escape

from p2plane.experiments.blocks import Block, Cell, Figure, Table
from p2plane.experiments.page import Page

STYLE = """
:root { color-scheme: light dark; --line: #d5d8dd; --soft: #6a7078; --best: #ffd5dc; --link: #1b5fa8; }
@media (prefers-color-scheme: dark) { :root { --line: #3b4048; --soft: #9aa2ad; --best: #6b2433; --link: #8cbcf2; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.6rem; border-bottom: 1px solid var(--line); padding-bottom: .2rem; }
h2 small { color: var(--soft); font-weight: normal; font-size: .75em; }
nav { columns: 2; } nav a { display: block; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; margin: .5rem 0 1.4rem; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
td a { color: inherit; text-decoration: none; } td a:hover { text-decoration: underline; color: var(--link); }
td small { color: var(--soft); display: block; }
.best { background: var(--best); border-radius: 3px; padding: 0 .25em; }
figure { margin: 1rem 0 1.6rem; } img { max-width: 100%; background: white; border-radius: 4px; }
figcaption, .caption { color: var(--soft); font-size: 13px; max-width: 60rem; } a { color: var(--link); }
"""


def html(page: Page) -> str:
    """The text of the page."""
    links = "".join(f'<a href="#{each.experiment.name}">{escape(each.experiment.title)}</a>' for each in page.sections)
    parts = [f"<h1>{escape(page.title)}</h1>", f"<p>{_text(page.introduction)}</p>", f"<nav>{links}</nav>"]
    for section in page.sections:
        title, reference = escape(section.experiment.title), escape(section.experiment.reference)
        parts.append(f'<h2 id="{section.experiment.name}">{title} <small>{reference}</small></h2>')
        parts += [_block(page, block) for block in section.blocks]
    parts += ["<h2>Settings, versions and times</h2>", *(_block(page, block) for block in page.settings)]
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(page.title)}</title>'
    )
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n'
    )


def _block(page: Page, block: Block) -> str:
    if isinstance(block, Table):
        return _table(page, block)
    if isinstance(block, Figure):
        return _figure(page, block)
    return f"<p>{_text(block.text)}</p>"


def _figure(page: Page, figure: Figure) -> str:
    picture = base64.b64encode((page.folder / page.picture(figure)).read_bytes()).decode()
    sources = ", ".join(f'<a href="{escape(page.link(each))}">{escape(each.name)}</a>' for each in figure.sources)
    caption = f"{escape(figure.caption)} From {sources}."
    image = f'<img alt="{escape(figure.name)}" src="data:image/png;base64,{picture}">'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"


def _table(page: Page, table: Table) -> str:
    header = "".join(f"<th>{escape(name)}</th>" for name in table.header)
    rows = "\n".join("<tr>" + "".join(_cell(page, cell) for cell in row) + "</tr>" for row in table.rows)
    caption = f'<p class="caption">{escape(table.caption)}</p>' if table.caption else ""
    return (
        f'{caption}<div class="scroll"><table><thead><tr>{header}</tr></thead><tbody>\n{rows}\n</tbody></table></div>'
    )


def _cell(page: Page, cell: Cell) -> str:
    text = escape(cell.text)
    if cell.source:
        text = f'<a href="{escape(page.link(cell.source))}">{text}</a>'
    text = _marked(text, cell.bold, cell.best)
    if cell.below:
        text += f"<small>{_marked(escape(cell.below), cell.below_bold, cell.below_best)}</small>"
    return f"<td>{text}</td>"


def _marked(text: str, bold: bool, best: bool) -> str:
    text = f"<b>{text}</b>" if bold else text
    return f'<span class="best" title="the best of its column">{text} ★</span>' if best else text


def _text(text: str) -> str:
    """Escaped, with code between back ticks."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))
