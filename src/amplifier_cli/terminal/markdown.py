"""Markdown drawn for a terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from amplifier_system.visible import sequence, visible

_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def drawn(text: str, *, width: int, colour: bool) -> str:
    """Return markdown as lines of a terminal. A line break in the text stays one, as people expect of a chat."""
    document = Markdown(visible(text), code_theme="ansi_dark", hyperlinks=False)
    document.parsed = _shown(document.parsed)
    page = io.StringIO()
    Console(file=page, width=width, force_terminal=colour, no_color=not colour, legacy_windows=False).print(document)
    lines = "\n".join(line.rstrip() for line in page.getvalue().rstrip("\n").split("\n"))
    return _STYLE.sub(lambda found: sequence(found[0]), lines)


def _shown(tokens: Sequence[Any]) -> list[Any]:
    """Return tokens whose texts are visible: parsing has made characters of entities and of parts of addresses."""
    kept = [token for token in tokens if token.markup != "autolink"]  # its text is the address already
    for token in kept:
        token.content = visible(token.content)
        token.attrs = {name: visible(str(value)) for name, value in token.attrs.items()}
        token.children = _shown(token.children) if token.children else token.children
        if token.type == "softbreak":
            token.type = "hardbreak"
    return kept
