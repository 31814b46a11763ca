"""Which events a client wants: patterns for names, and presets of them."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal

Preset = Literal["streaming", "tools", "minimal", "full"]

PRESETS: dict[str, tuple[str, ...]] = {
    "streaming": ("content_block:*", "thinking:*", "llm:stream_*", "assistant_message:*", "execution:done"),
    "tools": ("tool:*",),
    "minimal": ("execution:done", "approval:*", "session:*"),
    "full": ("*",),
}

_CONTROL = "stream:"
_NAMES_REMEMBERED = 1024


def is_control(name: str) -> bool:
    """Say whether an event steers the stream itself: a gap, an overflow, its beginning."""
    return name.startswith(_CONTROL)


class EventFilter:
    """Says which names pass. The events by which the stream itself is steered always do."""

    def __init__(self, patterns: Iterable[str] = (), preset: Preset | None = None) -> None:
        """Take patterns and a preset together; without either everything passes."""
        given = tuple(pattern.strip() for pattern in patterns if pattern.strip())
        wanted = (*given, *PRESETS[preset]) if preset else given or PRESETS["full"]
        self.patterns, self.is_open = wanted, "*" in wanted

        @lru_cache(maxsize=_NAMES_REMEMBERED)
        def passes(name: str) -> bool:
            return is_control(name) or any(fnmatchcase(name, pattern) for pattern in wanted)

        self._passes = passes

    @classmethod
    def read(cls, text: str | None, preset: Preset | None = None) -> EventFilter:
        """Return the filter that a comma-separated list of patterns and a preset name."""
        return cls((text or "").split(","), preset)

    def passes(self, name: str) -> bool:
        return self.is_open or self._passes(name)
