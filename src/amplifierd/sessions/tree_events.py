"""Events and everyone who watches them: those of a session tree, with one counter, and those of a whole home."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

Event = dict[str, Any]
"""`{event, sequence, session_id, parent_id, root_session_id, timestamp, correlation_id, data}`.

`sequence` is None where no tree counts any more: a session was deleted.
"""

_RING = 10_000
UNSTORED = _RING
"""How many numbers are passed over after a crash: pieces of an answer that were told, and not stored, may have them."""


def is_delta(event: str) -> bool:
    """Say whether an event carries a piece of something that is told as a whole later."""
    return event.endswith(":delta") or event == "llm:stream_block_delta"


class EventSource:
    """Hands events to everyone who watches; never waits for one."""

    def __init__(self) -> None:
        self._subscribers: dict[Subscription, None] = {}

    def publish(self, event: Event) -> None:
        """Tell everyone who watches."""
        for subscription in tuple(self._subscribers):
            subscription.put(event)

    def subscribe(self, wants: Callable[[Event], bool] | None = None) -> Subscription:
        subscription = Subscription(self, wants)
        self._subscribers[subscription] = None
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        self._subscribers.pop(subscription, None)


class TreeEvents(EventSource):
    """Numbers the events of a root session and its descendants; what is told here is told `beyond` as well.

    An event with a number is told once every earlier one was told or skipped: those who watch get them in order,
    however long each took to be stored.
    """

    def __init__(
        self, root_session_id: str, last_sequence: int = 0, *, beyond: EventSource | None = None, keep: int = _RING
    ) -> None:
        super().__init__()
        self.root_session_id = root_session_id
        self._sequence, self._beyond = last_sequence, beyond
        self._recent: deque[Event] = deque(maxlen=keep)
        self._numbered: deque[int] = deque()
        self._ready: dict[int, Event | None] = {}

    @property
    def last_sequence(self) -> int:
        return self._sequence

    def next_sequence(self) -> int:
        """Return a number of its own; whoever takes it is `telling` its event."""
        self._sequence += 1
        self._numbered.append(self._sequence)
        return self._sequence

    def publish(self, event: Event) -> None:
        """Tell everyone who watches, as soon as it is this event's turn."""
        self._ready[event["sequence"]] = event
        self._tell_ready()

    @contextmanager
    def telling(self, *events: Event) -> Iterator[None]:
        """Tell events once they are stored; where that fails, later ones do not wait for them."""
        try:
            yield
        except BaseException:
            for event in events:
                self.skip(event["sequence"])
            raise
        for event in events:
            self.publish(event)

    def skip(self, sequence: int) -> None:
        """Let later events pass: the one with this number is not told."""
        self._ready[sequence] = None
        self._tell_ready()

    def _tell_ready(self) -> None:
        while self._numbered and self._numbered[0] in self._ready:
            event = self._ready.pop(self._numbered.popleft())
            if event is not None:
                self._tell(event)

    def _tell(self, event: Event) -> None:
        self._recent.append(event)
        super().publish(event)
        if self._beyond is not None:
            self._beyond.publish(event)

    def recent(self, after: int) -> list[Event]:
        """Return the events after a number, as far back as they are remembered."""
        return [event for event in self._recent if event["sequence"] > after]


class Subscription:
    """The events that come from now on: `async for event in subscription`, until it is closed."""

    def __init__(self, source: EventSource, wants: Callable[[Event], bool] | None = None) -> None:
        self._source, self._wants = source, wants
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue()

    def put(self, event: Event) -> None:
        if self._wants is None or self._wants(event):
            self._queue.put_nowait(event)

    def close(self) -> None:
        """End the iteration once what has come already is read."""
        self._source.unsubscribe(self)
        self._queue.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[Event]:
        try:
            while (event := await self._queue.get()) is not None:
                yield event
        finally:
            self._source.unsubscribe(self)
