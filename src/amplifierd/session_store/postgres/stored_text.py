"""Values as PostgreSQL takes them: its texts know neither the character 0 nor halves of surrogate pairs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from amplifier_sessions.search_text import Wanted, message_text, words
from amplifierd.session_store.json_lines import encoded, parse_line

_LONGEST_WORD = 500  # characters; the index takes no longer ones
_LONGEST_COMPARED = 500
_LARGEST = (1 << 63) - 1


def json_text(value: Any) -> str:
    """Return a value as one line of JSON, in which everything that a text cannot have is escaped.

    Raises:
        ValueError: there is something in it that JSON cannot say.
    """
    return encoded(value).decode()


def parsed(body: str) -> dict[str, Any]:
    """Return the object that a stored line says."""
    return parse_line(body.encode()) or {}


def column_text(value: Any) -> str | None:
    """Return a value as a column that is only compared has it; of one that no index takes, its beginning and a hash."""
    if value is None:
        return None
    text = str(value).encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    if len(text) <= _LONGEST_COMPARED:
        return text
    return f"{text[:_LONGEST_COMPARED]}…{hashlib.sha256(text.encode()).hexdigest()}"


def said_words(text: str) -> str | None:
    """Return the words of a text between spaces, None when there is none."""
    found = [word[:_LONGEST_WORD] for word in words(text)]
    return f" {' '.join(found)} " if found else None


def said_in(message: Mapping[str, Any]) -> str | None:
    return said_words(message_text(dict(message)))


def event_number(event: Mapping[str, Any]) -> int:
    number = event.get("seq")
    return number if isinstance(number, int) and abs(number) < _LARGEST else 0


def search_conditions(wanted: Wanted, column: str, words_of: str) -> tuple[str, dict[str, str]] | None:
    """Return what a row has to satisfy in which a text is found, with its values; None when there is no word in it.

    The index finds the rows that have all of its words; those that have to stand in a row are looked for in these.
    """
    if not wanted.phrases:
        return None
    phrases = [[word[:_LONGEST_WORD] for word in phrase] for phrase in wanted.phrases]
    every = " & ".join(f"'{word}'" for phrase in phrases for word in phrase)
    conditions, values = [f"{words_of.format(column)} @@ %(words)s::tsquery"], {"words": every}
    for number, phrase in enumerate(phrases):
        if len(phrase) > 1:
            conditions.append(f"strpos({column}, %(phrase{number})s) > 0")
            values[f"phrase{number}"] = f" {' '.join(phrase)} "
    return f"({' AND '.join(conditions)})", values
