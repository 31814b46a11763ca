"""A client that watches events: a bounded queue that is filled without waiting and emptied in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from amplifierd.store.json_lines import encoded

from .published_event import PublishedEvent


@dataclass(frozen=True)
class StreamLimits:
    """How much is kept for those who watch. `ring_bytes` and `all_rings_bytes` bound what `ring_events` lets in.

    Of the trees that are not watched, at most `rings` are remembered, those that were active last.
    Of the places for `subscribers`, an owner that is named takes at most as many as it leaves free.
    """

    queue_events: int = 10_000
    queue_bytes: int = 8 << 20
    ring_events: int = 10_000
    ring_bytes: int = 8 << 20
    all_rings_bytes: int = 128 << 20
    rings: int = 4096
    subscribers_per_session: int = 64
    subscribers: int = 512


@dataclass(frozen=True)
class Missing:
    """A place in a queue where events are missing that have to be read from the disk; `until` None: all there are."""

    after: int
    until: int | None

    size = 0


Item = PublishedEvent | Missing


class Subscriber:
    """Takes events that it wants. One that reads too slowly gets pieces of blocks joined, then none, then is closed."""

    def __init__(self, limits: StreamLimits, wants: Callable[[PublishedEvent], bool], owner: str = "") -> None:
        self.owner = owner
        self.dropped = 0
        self.is_overflowed = self.is_closed = False
        self._wants, self._max_events, self._max_bytes = wants, limits.queue_events, limits.queue_bytes
        self._queue: deque[Item] = deque()
        self._size = 0
        self._is_shedding = False
        self._waiting: asyncio.Future[None] | None = None

    def wants(self, event: PublishedEvent) -> bool:
        return self._wants(event)

    def offer(self, event: PublishedEvent) -> None:
        """Take an event if it is wanted; never waits."""
        if not self.is_closed and self._wants(event):
            self.put(event)

    def put(self, item: Item) -> None:
        if self.is_closed:
            return
        if self._is_shedding and isinstance(item, PublishedEvent) and item.is_delta:
            if len(self._queue) * 2 > self._max_events or self._size * 2 > self._max_bytes:
                self.dropped += 1
                return
            self._is_shedding = False
        self._queue.append(item)
        self._size += item.size
        if self._is_full():
            self._make_room()
        self._wake()

    def take(self, most_bytes: int = 1 << 16) -> list[Item]:
        """Return what has come first, about as much as fits, and forget it."""
        taken: list[Item] = []
        size = 0
        while self._queue and size < most_bytes:
            item = self._queue.popleft()
            taken.append(item)
            size += item.size
        self._size -= size
        return taken

    async def news(self, timeout_s: float) -> bool:
        """Wait until something has come or the subscription is closed; False when nothing did in time."""
        if not self._queue and not self.is_closed:
            loop = asyncio.get_running_loop()
            self._waiting = loop.create_future()
            timer = loop.call_later(timeout_s, self._wake)
            try:
                await self._waiting
            finally:
                self._waiting = None
                timer.cancel()
        return bool(self._queue) or self.is_closed

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def is_done(self) -> bool:
        """True if it is closed, and everything was taken."""
        return self.is_closed and not self._queue

    def close(self) -> None:
        """Take nothing more; what has come already can be read."""
        self.is_closed = True
        self._wake()

    def clear(self) -> None:
        """Free what is queued."""
        self._replace(())

    def _is_full(self) -> bool:
        return len(self._queue) > self._max_events or (self._size > self._max_bytes and len(self._queue) > 1)

    def _make_room(self) -> None:
        """Join pieces of blocks, drop them where that does not help, and give up before anything else is lost."""
        self._join_deltas()
        if len(self._queue) * 4 > self._max_events * 3 or self._size * 4 > self._max_bytes * 3:
            kept = [item for item in self._queue if isinstance(item, Missing) or not item.is_delta]
            self.dropped += len(self._queue) - len(kept)
            self._replace(kept)
            self._is_shedding = True
        if self._is_full():
            self._replace(())
            self.is_overflowed = True
            self.close()

    def _join_deltas(self) -> None:
        joined: list[Item] = []
        run: list[PublishedEvent] = []
        for item in self._queue:
            if isinstance(item, PublishedEvent):
                run.append(item)
            else:
                joined += [*merged(run), item]
                run = []
        self._replace([*joined, *merged(run)])

    def _replace(self, items: list[Item] | tuple[()]) -> None:
        self._queue = deque(items)
        self._size = sum(item.size for item in items)


_TEXTS = ("text", "delta")
"""The keys under which pieces have their text."""

_OF_ONE_PIECE = frozenset({*_TEXTS, "sequence", "timestamp"})


def merged(events: Sequence[PublishedEvent]) -> list[PublishedEvent]:
    """Return events in their order, with neighbouring pieces of one block as one piece where the last one stands."""
    found: list[PublishedEvent] = []
    for block, run in groupby(events, key=_block):
        pieces = [*run]
        found += pieces if block is None or len(pieces) == 1 else [_one(pieces)]
    return found


def _block(event: PublishedEvent) -> bytes | None:
    """Return what pieces of one block have in common, None for what is not a piece of text."""
    if not event.is_delta:
        return None
    envelope = event.envelope()
    data = envelope.get("data")
    if not isinstance(data, dict) or _text_key(data) is None:
        return None
    rest = {key: value for key, value in data.items() if key not in _OF_ONE_PIECE}
    return encoded([event.name, event.session_id, event.root_id, envelope.get("correlation_id"), _text_key(data), rest])


def _one(pieces: Sequence[PublishedEvent]) -> PublishedEvent:
    envelopes = [piece.envelope() for piece in pieces]
    last, key = pieces[-1], _text_key(envelopes[0]["data"])
    text = "".join(envelope["data"][key] for envelope in envelopes)
    whole = {**envelopes[-1], "data": {**envelopes[-1]["data"], key: text}}
    one = PublishedEvent(
        last.name,
        encoded(whole),
        session_id=last.session_id,
        root_id=last.root_id,
        cursor=last.cursor,
        is_delta=True,
    )
    one.number = last.number
    return one


def _text_key(data: dict[str, Any]) -> str | None:
    return next((key for key in _TEXTS if isinstance(data.get(key), str)), None)
