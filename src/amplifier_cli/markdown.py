"""Markdown drawn for a terminal."""

from __future__ import annotations

import io

from rich.console import Console
from rich.markdown import Markdown


def drawn(text: str, *, width: int, colour: bool) -> str:
    """Return markdown as lines of a terminal. A line break in the text stays one, as people expect of a chat."""
    document = Markdown(text, code_theme="ansi_dark")
    for token in document.parsed:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"
    page = io.StringIO()
    Console(file=page, width=width, force_terminal=colour, no_color=not colour, legacy_windows=False).print(document)
    return "\n".join(line.rstrip() for line in page.getvalue().rstrip("\n").split("\n"))
