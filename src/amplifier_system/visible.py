"""The border between data and a screen: text that we did not write, made visible and harmless.

Model text, tool input and output, names of files, tools and sessions, and messages of servers can carry characters that
a terminal or a browser obeys instead of showing: escape sequences, changes of direction, letters without a shape. Every
surface passes such text through `visible`, or `visible_exactly` where a person decides on it, and adds its own styling
afterwards. Nothing is deleted, so nothing can hide behind a sequence that never ends.
"""

import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, TextIO

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


# Standard streams as screens: whoever writes to them, text from outside is shown and never obeyed.
#
# A command opens its screens once, and then every `print`, log line and traceback of its process passes the border
# `visible`. What a terminal is to obey, our own colours and erased lines, is marked by `sequence`. The mark is made
# up anew in each process and stands in no text that comes from outside.


_MARK = f"\x1b<{os.urandom(12).hex()}>"
_MARKED = re.compile(f"{_MARK}(.*?){_MARK}", re.DOTALL)


def sequence(codes: str) -> str:
    """Return codes that a screen obeys. None of them comes from outside."""
    return f"{_MARK}{codes}{_MARK}"


def shown(text: str) -> str:
    """Return text as a terminal gets it: visible, with what `sequence` marked to be obeyed."""
    if _MARK not in text:
        return visible(text)
    return "".join(part if index % 2 else visible(part) for index, part in enumerate(_MARKED.split(text)))


class Screen(io.TextIOBase):
    """A text stream on which every character is visible, also where its encoding lacks one."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override] # read-only, as it is where it leads to
        return self.stream.encoding or "utf-8"

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self.stream.errors

    @property
    def buffer(self) -> BinaryIO:
        """What bytes are written to: for programs that draw the screen themselves."""
        return self.stream.buffer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        encoding = self.encoding
        self.stream.write(shown(text).encode(encoding, errors="backslashreplace").decode(encoding))
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def fileno(self) -> int:
        return self.stream.fileno()

    def isatty(self) -> bool:
        return self.stream.isatty()

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Leave the stream open for what the interpreter still has to say."""


def open_screens() -> None:
    """Make screens of stdout and stderr, for the rest of this process."""
    sys.stdout, sys.stderr = screen(sys.stdout), screen(sys.stderr)


@contextmanager
def screens() -> Iterator[None]:
    """Make screens of stdout and stderr in this block."""
    before = sys.stdout, sys.stderr
    open_screens()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def say(text: str, *, err: bool = False) -> None:
    """Write a line to stdout, or to stderr."""
    stream = screen(sys.stderr if err else sys.stdout)
    stream.write(f"{text}\n")
    stream.flush()


def write_exactly(text: str) -> None:
    """Write a line to stdout as it is, for a program or a file that takes it; on a terminal it is visible."""
    stream = screen(sys.stdout)
    target = stream if stream.isatty() or not isinstance(stream, Screen) else stream.stream
    encoding = target.encoding or "utf-8"
    target.write(text.encode(encoding, errors="backslashreplace").decode(encoding) + "\n")
    target.flush()


def screen(stream: TextIO) -> TextIO:
    """Return a stream as a screen."""
    return stream if isinstance(stream, Screen) else Screen(stream)  # type: ignore[return-value]
