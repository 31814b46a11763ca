"""Text from outside, without what a terminal or a browser would obey instead of showing it."""

from __future__ import annotations

import re

_TERMINAL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and movements
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links and other strings for the terminal
    r"|\x1b[ -/]*[0-~]"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # controls, but for tabs and ends of lines
    "\u202a-\u202e\u2066-\u2069"  # these turn the direction of what follows
    "\U000e0000-\U000e007f"  # invisible letters
    "\ud800-\udfff]"  # halves of letters, which cannot be sent
)
_PICTURES = 0x2400


def visible(text: str) -> str:
    """Return a text with terminal sequences gone and invisible characters shown by their number."""
    return _INVISIBLE.sub(_shown, _TERMINAL.sub("", text))


def _shown(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(_PICTURES + code)
    return "\u2421" if code == 0x7F else f"\u27e8U+{code:04X}\u27e9"
