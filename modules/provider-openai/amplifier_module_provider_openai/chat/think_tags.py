"""Thinking that a model writes into its answer, between `<think>` and `</think>` at the very beginning."""

from collections.abc import Iterator
from typing import Literal

Fragment = tuple[Literal["thinking", "text"], str]

_OPEN, _CLOSE = "<think>", "</think>"


class ThinkTags:
    """Sorts fragments of an answer as they come; what may be half a tag is held back until it is known."""

    def __init__(self, *, is_on: bool = True) -> None:
        self._state: Literal["before", "opened", "thinking", "after", "text"] = "before" if is_on else "text"
        self._held = ""

    def feed(self, fragment: str) -> Iterator[Fragment]:
        """Yield what is certain now."""
        self._held += fragment
        if self._state == "before":
            self._begin()
        if self._state == "opened":
            self._skip_to("thinking")
        if self._state == "thinking":
            yield from self._think()
        if self._state == "after":
            self._skip_to("text")
        if self._state == "text":
            yield from self._take("text", len(self._held))

    def flush(self) -> Iterator[Fragment]:
        """Yield what is left at the end."""
        yield from self._take("thinking" if self._state == "thinking" else "text", len(self._held))

    def _begin(self) -> None:
        start = self._held.lstrip()
        if start.startswith(_OPEN):
            self._held = start[len(_OPEN) :]
            self._state = "opened"
        elif not _OPEN.startswith(start):
            self._state = "text"

    def _skip_to(self, state: Literal["thinking", "text"]) -> None:
        """Leave the white space after a tag out."""
        self._held = self._held.lstrip()
        if self._held:
            self._state = state

    def _think(self) -> Iterator[Fragment]:
        end = self._held.find(_CLOSE)
        if end >= 0:
            yield from self._take("thinking", end)
            self._held = self._held[len(_CLOSE) :]
            self._state = "after"
            return
        half = next((n for n in range(len(_CLOSE) - 1, 0, -1) if self._held.endswith(_CLOSE[:n])), 0)
        yield from self._take("thinking", len(self._held) - half)

    def _take(self, kind: Literal["thinking", "text"], length: int) -> Iterator[Fragment]:
        taken, self._held = self._held[:length], self._held[length:]
        if taken:
            yield kind, taken
