"""Names that were probably meant: a unique beginning, or one that is spelled almost like what was written."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_SHOWN = 3
_ALIKE = 0.65


def nearest(typed: str, known: Iterable[str]) -> list[str]:
    """Return the known names that a typed one resembles, the likeliest first."""
    names = [*known]
    begins = [name for name in names if typed and name.startswith(typed)]
    return [*dict.fromkeys([*begins, *get_close_matches(typed, names, n=_SHOWN, cutoff=_ALIKE)])][:_SHOWN]


def did_you_mean(typed: str, known: Iterable[str]) -> str:
    """Return the end of a message that names what was probably meant, empty when nothing resembles it."""
    found = nearest(typed, known)
    return f"did you mean {' or '.join(found)}?" if found else ""
