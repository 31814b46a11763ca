"""The latest events of a stream, as far back as there is room."""

from __future__ import annotations

from collections import deque
from itertools import islice

from .published_event import PublishedEvent


class EventRing:
    """Remembers numbered events, each one more than the last. Everything after `floor` and up to `last` is in it."""

    def __init__(self, floor: int, *, max_events: int, max_bytes: int) -> None:
        self.floor = self.last = floor
        self.size = 0
        self._max_events, self._max_bytes = max_events, max_bytes
        self._events: deque[PublishedEvent] = deque()

    def __len__(self) -> int:
        return len(self._events)

    def add(self, event: PublishedEvent) -> None:
        self._events.append(event)
        self.last += 1
        self.size += event.size
        while len(self._events) > self._max_events or (self.size > self._max_bytes and len(self._events) > 1):
            self.size -= self._events.popleft().size
            self.floor += 1

    def after(self, number: int) -> list[PublishedEvent]:
        """Return the events after a number that are still there."""
        return [*islice(reversed(self._events), max(0, self.last - number))][::-1]

    def clear(self, floor: int | None = None) -> None:
        """Forget the events: what comes next follows `floor`, by default the last of them."""
        self._events.clear()
        self.size = 0
        self.floor = self.last = self.last if floor is None else floor
