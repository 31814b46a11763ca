"""Standard streams as screens: whoever writes to them, text from outside is shown and never obeyed.

A command opens its screens once, and then every `print`, log line and traceback of its process passes the border
`visible`. What a terminal is to obey, our own colours and erased lines, is marked by `sequence`. The mark is made up
anew in each process and stands in no text that comes from outside.
"""

import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, TextIO

from .visible import visible

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
