"""Formulas as MathML, which browsers draw by themselves: no script and no font has to come from elsewhere."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.S)
_DISPLAY = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.S)


def on_page_content(content: str, **_: Any) -> str:
    """The page with every formula converted."""
    content = _DISPLAY.sub(lambda found: convert(html.unescape(found[1]), display="block"), content)
    return _INLINE.sub(lambda found: convert(html.unescape(found[1])), content)
