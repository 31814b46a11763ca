"""What a worker has to tell, in order, many things in one write."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from sys import intern
from typing import Any

from amplifierd.sessions.events.tree_events import Event, is_delta
from amplifierd.store.cursor import Cursor
from amplifierd.store.json_lines import encoded_for_others

from .json_rpc import Notification, Peer
from .live_sessions import LiveEvent

_PAUSE_S = 0.004
"""How long an event may wait for others; a person does not notice it."""

_LONGEST_PAUSE_S = 0.02
"""How long it may wait while the event loop is busy: each write wakes the daemon, which then needs a core, too."""

MOST_BACKLOG = 8 << 20
"""How many bytes may wait for the daemon before pieces of answers are left out."""

DescribedEvent = tuple[str, str, str, str | None, bool]
"""`[name, session_id, root_session_id, cursor, is_delta]`: what must be known of an event without reading it."""


class Outbox:
    """Collects events and other news for the daemon. An event is made into JSON here, once for all who read it.

    While the daemon takes nothing, pieces of answers are left out: clients get the whole block. The rest
    waits; there is no more of it than the running turns make.
    """

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._waiting: list[Notification] = []
        self._events: list[DescribedEvent] = []
        self._envelopes: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0

    def put_event(self, event: Event) -> None:
        """Tell an event, soon."""
        if is_delta(event["event"]) and self._peer.backlog > MOST_BACKLOG:
            return
        if not self._events:
            self._waiting.append(Notification("events", {"events": self._events}, self._envelopes))
        self._events.append(described_event(event))
        self._envelopes.append(encoded_for_others(event))
        self._flush_soon()

    def put_soon(self, method: str, params: Mapping[str, Any]) -> None:
        """Tell something else, after what was put so far, together with what comes in a moment."""
        self._waiting.append(Notification(method, params))
        self._events, self._envelopes = [], []
        self._flush_soon()

    def put(self, method: str, params: Mapping[str, Any]) -> None:
        """Tell something else, after what was put so far, at once."""
        self.put_soon(method, params)
        self.flush()

    def flush(self) -> None:
        """Send what waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            waiting, self._waiting, self._events, self._envelopes = self._waiting, [], [], []
            self._peer.notify_all(waiting)

    def _flush_soon(self) -> None:
        """Send it after a pause; when the event loop has been too busy for that for long, with what comes next."""
        now_s = time.monotonic()
        if self._timer is None:
            self._due_s = now_s + _LONGEST_PAUSE_S
            self._timer = asyncio.get_running_loop().call_later(_PAUSE_S, self.flush)
        elif now_s > self._due_s:
            self.flush()


def described_event(event: Event) -> DescribedEvent:
    """Return what must be known of an event without reading it."""
    name = event["event"]
    return name, event["session_id"], event["root_session_id"], event["cursor"], is_delta(name)


def live_event(described: Sequence[Any], envelope: bytes) -> LiveEvent:
    """Return an event as it is passed on in the daemon."""
    name, session_id, root_id, written, is_piece = described
    cursor = None if written is None else Cursor.parse(written)
    same = intern(name), intern(session_id), intern(root_id)  # those of thousands of events that are kept
    return LiveEvent(*same, cursor, is_piece, envelope)
