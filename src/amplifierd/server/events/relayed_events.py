"""Events as they come over the stream of another member."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from amplifierd.sessions.events.tree_events import is_delta
from amplifierd.store.cursor import Cursor

from .published_event import PublishedEvent

_END = b"\n\n"
_LONGEST_FRAME = 64 << 20

Relayed = list[tuple[str | None, PublishedEvent]]
"""Events with their ids in the stream that they came over."""


async def relayed_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[Relayed]:
    """Yield the events of a stream as they come, those of one piece together; none where it only shows that it lives.

    Raises:
        ValueError: it is not a stream of events.
    """
    rest = b""
    async for chunk in chunks:
        *frames, rest = (rest + chunk).split(_END)
        if len(rest) > _LONGEST_FRAME:
            raise ValueError("an event is too large")
        yield [event for frame in frames if (event := _event(frame)) is not None]


async def batches_of(relayed: AsyncIterator[Relayed]) -> AsyncIterator[list[PublishedEvent]]:
    """Yield the events alone."""
    async for batch in relayed:
        yield [event for _, event in batch]


def _event(frame: bytes) -> tuple[str | None, PublishedEvent] | None:
    fields = dict(line.split(b": ", 1) for line in frame.split(b"\n") if b": " in line and line[:1] != b":")
    data = fields.get(b"data")
    if data is None:
        return None
    envelope: dict[str, Any] = json.loads(data)
    name, owners = str(envelope["event"]), fields.get(b"owners")
    event = PublishedEvent(
        name,
        data,
        session_id=envelope.get("session_id"),
        root_id=envelope.get("root_session_id"),
        cursor=Cursor.of_event(envelope),
        is_delta=is_delta(name),
        owners=None if owners is None else frozenset(owners.decode().split(",")),
    )
    return (fields[b"id"].decode() if b"id" in fields else None), event
