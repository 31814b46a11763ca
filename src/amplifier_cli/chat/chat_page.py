"""Where a chat is drawn: above the line in which one types."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from amplifier_cli.markdown import drawn
from amplifier_cli.render import has_colour, shortened, write

_WIDEST = 110
_MOST_AGENTS = 6


class ChatPage:
    """Prints what is done, and keeps in `now` and `tree` what is going on, and whether the session `is_tainted`."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.now = ""
        self.tree: list[str] = []
        self.is_tainted = False

    def answer(self, text: str) -> None:
        width = min(shutil.get_terminal_size().columns, _WIDEST)
        self._print(drawn(text, width=width, colour=has_colour(sys.__stdout__ or sys.stdout)) + "\n")

    def line(self, text: str) -> None:
        self._print(text)

    def follow(self, event: Mapping[str, Any]) -> None:
        """Take over what an event of the session says about its status."""
        if event["event"] == "session:status" and event["data"].get("tainted"):
            self.is_tainted = True
            self._changed()

    def status_line(self, hints: str | None) -> str:
        """Return the lines above the input: whether the session is tainted and, with hints, what is going on."""
        mark = "tainted" if self.is_tainted else ""
        if hints is None:
            return mark
        parts = [part for part in (mark, self.now or "working", hints) if part]
        return "\n".join([*self.tree, " · ".join(parts)])

    def status(self, text: str) -> None:
        self.now = shortened(text, shutil.get_terminal_size().columns - 1) if text else ""
        self._changed()

    def agents(self, lines: Sequence[str]) -> None:
        width = shutil.get_terminal_size().columns - 1
        shown = [*lines[:_MOST_AGENTS], *([f"… {len(lines) - _MOST_AGENTS} more"] if len(lines) > _MOST_AGENTS else [])]
        self.tree = [line[:width] for line in shown]
        self._changed()

    def _print(self, text: str) -> None:
        write(text)  # the input line is redrawn below it
        sys.stdout.flush()
