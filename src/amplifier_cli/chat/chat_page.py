"""Where a chat is drawn: above the line in which one types."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from amplifier_cli.terminal.markdown import drawn
from amplifier_cli.terminal.render import can_show, has_colour, shortened, write
from amplifier_system.visible import visible_line

_WIDEST = 110
_MOST_AGENTS = 6


_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PLAIN_SPINNER = "|/-\\"
_TURNS_S = 0.1
_CHARACTERS_PER_TOKEN = 4
_PIECES = {"llm:stream_block_delta": "text", "content_block:delta": "delta"}


class TurnMeter:
    """How long a turn has been running, what it has used so far, and which model works for it."""

    def __init__(self) -> None:
        self._begun_s: float | None = None
        self._tokens = self._streamed = 0
        self._heard_from = ""
        self.model = ""

    @property
    def is_running(self) -> bool:
        return self._begun_s is not None

    def begin(self) -> None:
        self._begun_s, self._tokens, self._streamed = time.monotonic(), 0, 0

    def end(self) -> None:
        self._begun_s = None

    def follow(self, event: Mapping[str, Any]) -> None:
        """Take over what an event of the session says about its turn."""
        data = event["data"]
        match event["event"]:
            case "llm:stream_block_delta" | "content_block:delta" as name if self._heard_from in ("", name):
                self._heard_from = name  # a loop may repeat what its provider streams
                self._streamed += len(str(data.get(_PIECES[name]) or ""))
            case "llm:request":
                self.model, self._streamed = str(data.get("model") or ""), 0
            case "llm:response":
                used = data.get("usage") or {}
                self._tokens += sum(int(used.get(kind) or 0) for kind in ("input_tokens", "output_tokens"))
                self._streamed = 0
            case "user_message:saved":
                self.begin()
            case "execution:done":
                self.end()

    def parts(self) -> list[str]:
        """Return the sign of life, the seconds, the tokens so far and the model."""
        if self._begun_s is None:
            return []
        passed_s = time.monotonic() - self._begun_s
        signs = _SPINNER if can_show(_SPINNER) else _PLAIN_SPINNER
        tokens = self._tokens + self._streamed // _CHARACTERS_PER_TOKEN
        used = f"{tokens:,} tok" if tokens else ""
        return [f"{signs[int(passed_s / _TURNS_S) % len(signs)]} {passed_s:.0f} s", used, visible_line(self.model)]


class ChatPage:
    """Prints what is done, and keeps in `now` and `tree` what is going on, and whether the session `is_tainted`."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.meter = TurnMeter()
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
        self.meter.follow(event)
        if event["event"] == "session:status" and event["data"].get("tainted"):
            self.is_tainted = True
            self._changed()

    def status_lines(self, hints: Sequence[str] | None) -> str:
        """Return the lines above the input: whether the session is tainted and, with hints, what is going on.

        What does not fit the terminal's width is left out as a whole, the last hint first.
        """
        mark = ["tainted"] if self.is_tainted else []
        if hints is None:
            return "".join(mark)
        width = shutil.get_terminal_size().columns - 1
        parts = [part for part in (*self.meter.parts(), *mark, *hints) if part]
        while len(parts) > 1 and len(" · ".join(parts)) > width:
            parts.pop()
        return "\n".join([*self.tree, shortened(self.now or "working", width), shortened(" · ".join(parts), width)])

    def status(self, text: str) -> None:
        self.now = text
        self._changed()

    def agents(self, lines: Sequence[str]) -> None:
        width = shutil.get_terminal_size().columns - 1
        shown = [*lines[:_MOST_AGENTS], *([f"… {len(lines) - _MOST_AGENTS} more"] if len(lines) > _MOST_AGENTS else [])]
        self.tree = [line[:width] for line in shown]
        self._changed()

    def _print(self, text: str) -> None:
        write(text)  # the input line is redrawn below it
        sys.stdout.flush()
