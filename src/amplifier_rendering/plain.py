"""Text as it is, for what is not rendered: too much of it, or too slow to take apart."""

from __future__ import annotations

from html import escape

from amplifier_system.visible import visible

MAX_CHARACTERS = 1 << 20
"""The most of a text that is shown as HTML."""


def plain(text: str) -> str:
    """Return a text as HTML that looks like it, its end left out when there is too much."""
    shown = f'<pre class="md-plain">{escape(visible(text[:MAX_CHARACTERS]))}</pre>'
    more = len(text) - MAX_CHARACTERS
    return f"{shown}<p>\u2026 and {more} more characters</p>" if more > 0 else shown
