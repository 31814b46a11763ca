"""The border between data and a screen: text that we did not write, made visible and harmless.

Model text, tool input and output, names of files, tools and sessions, and messages of servers can carry characters that
a terminal or a browser obeys instead of showing: escape sequences, changes of direction, letters without a shape. Every
surface passes such text through `visible`, or `visible_exactly` where a person decides on it, and adds its own styling
afterwards. Nothing is deleted, so nothing can hide behind a sequence that never ends.
"""

import json
import re
from collections.abc import Callable

_BLANK = re.compile(  # shown as nothing, although Unicode counts them as marks, letters or symbols
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_SHAPING = "\u200c\u200d\ufe0f"  # they join and choose shapes, in many scripts and in emoji
_REMEMBERED = 10_000


class _Table(dict[int, str]):
    """What is shown for each character, for `str.translate`."""

    def __init__(self, kept: str, escape: Callable[[str], str]) -> None:
        super().__init__({ord(character): character for character in kept})
        self._escape = escape

    def __missing__(self, code: int) -> str:
        character = chr(code)
        shown = character if character.isprintable() and not _BLANK.match(character) else self._escape(character)
        if len(self) < _REMEMBERED:
            self[code] = shown
        return shown


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _escape_in_json(character: str) -> str:
    return f"\\u{ord(character):04x}" if character <= "\uffff" else json.dumps(character)[1:-1]


_TEXT = _Table("\n\t" + _SHAPING, _escape)
_EXACT = _Table("\n\t", _escape)
_JSON = _Table("\n\t" + _SHAPING, _escape_in_json)


def visible(text: str) -> str:
    r"""Return text as it can be shown: what would be obeyed or not be seen appears as an escape such as `\x1b`.

    Newlines and tabs stay, and so do the joiners and the variation selector that scripts and emoji need.
    """
    return text if _is_plain(text) else text.translate(_TEXT)


def visible_exactly(text: str) -> str:
    """Return text for a question: as `visible`, and every character that has no shape of its own is an escape, too."""
    return text if _is_plain(text) else text.translate(_EXACT)


def visible_line(text: str) -> str:
    r"""Return text for a place that has one line, such as a name in a list: newlines and tabs are escapes, too."""
    return text if _is_plain(text) else text.translate(_TEXT).replace("\n", "\\n").replace("\t", "\\t")


def visible_json(document: str) -> str:
    """Return a JSON document of the same value in which every character can be shown."""
    return document if _is_plain(document) else document.translate(_JSON)


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()
