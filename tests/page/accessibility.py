"""What keeps people out: controls without a name, text that is hard to read, a page that is wider than its window."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

_FAULTS = (Path(__file__).parent / "accessibility.js").read_text(encoding="utf-8").partition("\n")[2].rstrip(";\n")
BOTH = ("light", "dark")


def faults(page: Page, themes: tuple[str, ...] = ()) -> list[str]:
    """Return what is wrong with what a page shows: as it is, or in these themes."""
    if not themes:
        found: list[str] = page.evaluate(_FAULTS)
        return found
    told = []
    for theme in themes:
        page.evaluate("(theme) => { document.documentElement.dataset.theme = theme; }", theme)
        told += [f"{theme}: {fault}" for fault in faults(page)]
    return told
