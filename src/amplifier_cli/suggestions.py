"""What a person probably meant: a unique beginning, or a name that is spelled almost like it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches

from .failures import UsageError

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


def pick(typed: str, known: Iterable[str], what: str, *, key: Callable[[str], str] = str, see: str = "") -> str:
    """Return the one known name that is typed, or that begins like it; `key` is the part that people type.

    Raises:
        UsageError: none does, or several do.
    """
    names = [*known]
    if typed in names:
        return typed
    found = [name for name in names if key(name) == typed]
    found = found or [name for name in names if typed and (name.startswith(typed) or key(name).startswith(typed))]
    if len(found) == 1:
        return found[0]
    if found:
        some = ", ".join(found[:_SHOWN])
        raise UsageError(
            f"{typed!r} matches {len(found)} {what}s: {some}{', …' if len(found) > _SHOWN else ''}",
            hint="type more of it",
        )
    hint = did_you_mean(typed, names) or did_you_mean(typed, map(key, names)) or see
    raise UsageError(f"there is no {what} {typed!r}", hint=hint)
