"""The pages that a turn is drawn on: a terminal that scrolls, or none."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TextIO

from amplifier_system.visible import screen

from .render import ERASE_LINE, has_colour, shortened, styled, write

_WIDEST = 110


class TerminalPage:
    """A terminal on which lines follow each other; the last one may say what is going on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._has_status = False
        self._can_erase = stream.isatty()

    def answer(self, text: str) -> None:
        from .markdown import drawn  # draws with a library that takes a while to load

        self.status("")
        width = min(shutil.get_terminal_size().columns, _WIDEST)
        write(drawn(text, width=width, colour=has_colour(self._stream)) + "\n", self._stream)
        self._stream.flush()

    def line(self, text: str) -> None:
        self.status("")
        write(text, self._stream)
        self._stream.flush()

    def status(self, text: str) -> None:
        if not self._can_erase or (not text and not self._has_status):
            return
        line = styled(shortened(text, shutil.get_terminal_size().columns - 1), "dim", self._stream)
        screen(self._stream).write(f"{ERASE_LINE}{line}")
        self._stream.flush()
        self._has_status = bool(text)

    def agents(self, lines: Sequence[str]) -> None:
        self.status("; ".join(line.lstrip("├└│ ") for line in lines))


class ActivityPage(TerminalPage):
    """What is being done, on stderr, while the answer itself goes into a pipe."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def answer(self, text: str) -> None:
        self.status("")


class NoPage:
    """Shows nothing."""

    def answer(self, text: str) -> None: ...

    def line(self, text: str) -> None: ...

    def status(self, text: str) -> None: ...

    def agents(self, lines: Sequence[str]) -> None: ...


def page_for(stdout: TextIO, stderr: TextIO) -> TerminalPage | NoPage:
    """Return where a turn is drawn: on stdout if it is a terminal, else what is being done on stderr, if that is."""
    if stdout.isatty():
        return TerminalPage(stdout)
    return ActivityPage() if stderr.isatty() else NoPage()
