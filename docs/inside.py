"""The list of the modules that the reference does not show, with the first line of what each says of itself."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

PLACE = "[all other modules]"
DOCS, SOURCE = Path(__file__).parent, Path(__file__).parents[1] / "src"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with the list where it belongs."""
    return markdown.replace(PLACE, _table()) if PLACE in markdown else markdown


def _table() -> str:
    pages = "\n".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    shown = set(re.findall(r"^::: (\S+)", pages, flags=re.M))
    lines = ["| module | |", "| --- | --- |"]
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        is_shown = any(name == module or name.startswith(f"{module}.") for name in shown)
        if not is_shown and path.name != "__init__.py":
            about = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
            lines.append(f"| `{module}` | {about.replace('``', '`')} |")
    return "\n".join(lines)
