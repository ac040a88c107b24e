"""The page that ``p2plane reproduce all --compact --out docs`` writes, in the navigation once it is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = "results.md"
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)]+)\)")


def on_config(config: Any) -> Any:
    """With the page after the one that says how it is made."""
    if (Path(config.docs_dir) / PAGE).is_file():
        for section in config.nav:
            pages = section.get("Learn")
            if pages:
                pages.append({"Results": PAGE})
    return config


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Results files lie outside of the site: their names, and no links to them."""
    return _LINK.sub(r"\1", markdown) if page.file.src_uri == PAGE else markdown
