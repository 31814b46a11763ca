"""An event on its way to clients: serialised once and framed once for all of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Literal

from amplifierd.sessions.events.tree_events import is_delta
from amplifierd.store.cursor import Cursor
from amplifierd.store.json_lines import encoded_for_others
from amplifierd.store.protocol import StoredEvent
from amplifierd.store.record import now

_NAMES_REMEMBERED = 1024

_RESERVED = frozenset({"error", "open", "message"})
"""Names that browsers give a meaning of their own."""


_OF_A_LINE = (
    *("seq", "epoch", "ts", "lvl", "event", "session_id", "parent_id", "correlation_id", "data"),
    *("turn_id", "changes"),
)
"""What a line says in its own words, and what only the store has of an event."""


class PublishedEvent:
    """One event. `cursor` says where it stands in its tree; a daemon event has one only to say how far a client is.

    `number` is that of the global stream.

    One with `owners` is told only to them. One that `is_relayed` happened at another member. Its bytes, `size` of them,
    are never changed, so that all who get it share them.
    """

    __slots__ = (
        *("_envelope_from", "body", "cursor", "is_delta", "is_relayed", "name", "number", "owners", "root_id"),
        *("session_id", "size"),
    )

    def __init__(
        self,
        name: str,
        envelope: bytes,
        *,
        session_id: str | None = None,
        root_id: str | None = None,
        cursor: Cursor | None = None,
        is_delta: bool = False,
        owners: frozenset[str] | None = None,
    ) -> None:
        self.name, self.session_id, self.root_id = name, session_id, root_id
        self.cursor, self.is_delta, self.owners = cursor, is_delta, owners
        self.number, self.is_relayed = 0, False
        head = _head(name)
        self._envelope_from = len(head)
        self.body = b"%b%b\n\n" % (head, envelope)
        self.size = len(self.body)

    def frame(self) -> bytes:
        """Return the frame on the stream of a session; without a cursor it leaves the client's last id as it is."""
        return self.body if self.cursor is None else b"id: %b\n%b" % (str(self.cursor).encode(), self.body)

    def global_frame(self, boot_id: str) -> bytes:
        """Return the frame on the stream of all sessions."""
        return b"id: %b-%d\n%b" % (boot_id.encode(), self.number, self.body) if self.number else self.body

    def envelope(self) -> dict[str, Any]:
        """Return what the event says, read back."""
        read: dict[str, Any] = json.loads(self.body[self._envelope_from : -2])
        return read


def daemon_event(
    name: str,
    data: Mapping[str, Any],
    *,
    session_id: str | None = None,
    root_id: str | None = None,
    cursor: Cursor | None = None,
    owners: frozenset[str] | None = None,
) -> PublishedEvent:
    """Return an event of the daemon itself, which is not stored; one with a `cursor` says how far a client is."""
    envelope = {
        "event": name,
        "sequence": None,
        "cursor": None if cursor is None else str(cursor),
        "session_id": session_id,
        "parent_id": None,
        "root_session_id": root_id,
        "timestamp": now(),
        "correlation_id": None,
        "data": dict(data),
    }
    return PublishedEvent(
        name, encoded_for_others(envelope), session_id=session_id, root_id=root_id, cursor=cursor, owners=owners
    )


def stored_event(line: StoredEvent, root_id: str) -> PublishedEvent:
    """Return an event as it was told when it was stored."""
    name, session_id, cursor = str(line.get("event")), str(line.get("session_id")), Cursor.of_line(line)
    envelope = {
        "event": name,
        "sequence": cursor.seq,
        "cursor": str(cursor),
        "session_id": session_id,
        "parent_id": line.get("parent_id"),
        "root_session_id": root_id,
        "timestamp": line.get("ts"),
        "correlation_id": line.get("correlation_id"),
        **{key: value for key, value in line.items() if key not in _OF_A_LINE},
        "data": line.get("data"),
    }
    return PublishedEvent(
        name,
        encoded_for_others(envelope),
        session_id=session_id,
        root_id=root_id,
        cursor=cursor,
        is_delta=is_delta(name),
    )


@lru_cache(maxsize=_NAMES_REMEMBERED)
def _head(name: str) -> bytes:
    """Return what comes before an envelope: the name as one line that no browser takes for something of its own."""
    line = " ".join(name.splitlines())
    return f"event: {f'event:{line}' if line in _RESERVED else line}\ndata: ".encode(errors="replace")


# Which events a client wants: patterns for names, and presets of them.


Preset = Literal["streaming", "tools", "minimal", "full"]

PRESETS: dict[str, tuple[str, ...]] = {
    "streaming": ("content_block:*", "thinking:*", "llm:stream_*", "assistant_message:*", "execution:done"),
    "tools": ("tool:*",),
    "minimal": ("execution:done", "approval:*", "session:*"),
    "full": ("*",),
}

_CONTROL = "stream:"


def is_control(name: str) -> bool:
    """True if an event steers the stream itself: a gap, an overflow, its beginning."""
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
