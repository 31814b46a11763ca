"""The latest events of a stream, as far back as there is room."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from amplifierd.session_store.cursor import Cursor

from .published_event import PublishedEvent


class EventRing:
    """Remembers events by numbers that never fall. Everything with a number after `floor` and up to `last` is in it.

    In the ring of a tree these are the numbers of stored events. Pieces of answers have that of the event before them;
    they may be missing. `cursor` is where the last event of the tree stands.
    """

    def __init__(self, floor: int, *, max_events: int, max_bytes: int) -> None:
        self.floor = self.last = floor
        self.cursor = Cursor(0, floor)
        self.size = 0
        self._max_events, self._max_bytes = max_events, max_bytes
        self._events: deque[tuple[int, PublishedEvent]] = deque()

    def __len__(self) -> int:
        return len(self._events)

    def add(self, event: PublishedEvent, number: int) -> None:
        self._events.append((number, event))
        self.last, self.cursor = number, event.cursor or self.cursor
        self.size += event.size
        while len(self._events) > self._max_events or (self.size > self._max_bytes and len(self._events) > 1):
            self.floor, oldest = self._events.popleft()
            self.size -= oldest.size

    def after(self, is_known: Callable[[PublishedEvent], bool]) -> list[PublishedEvent]:
        """Return the events after the last one that is known, of those that are still there."""
        found: list[PublishedEvent] = []
        for _, event in reversed(self._events):
            if is_known(event):
                break
            found.append(event)
        return found[::-1]

    def clear(self, floor: int | None = None) -> None:
        """Forget the events: what comes next follows `floor`, by default the last of them."""
        self._events.clear()
        self.size = 0
        self.floor = self.last = self.last if floor is None else floor
