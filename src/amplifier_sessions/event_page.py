"""A part of what happened in a session: the first or the last events that fit, or those after a number."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heapreplace
from typing import Any

Event = dict[str, Any]

_AT_ONCE = 500


@dataclass(frozen=True)
class EventPage:
    """Some events, how many fit in all, and whether there are more in the direction that was asked for.

    `end` is the position after them, from which another page can go on. A page that is not counted has no total.
    """

    events: Sequence[Event]
    total: int
    has_more: bool
    end: int = 0


@dataclass(frozen=True)
class EventPlace:
    """Where a page is: at most `limit` events after a number, without the first `offset`, or as many from the end.

    `level` and `wants`, which is given names of events, say which fit. A page that is not `counted` may be shorter
    than its limit: it ends after about `most_bytes`, and `beyond` goes on from there.
    """

    limit: int
    after_seq: int = 0
    offset: int = 0
    from_end: bool = False
    level: str | None = None
    wants: Callable[[str], bool] | None = None
    counted: bool = True
    most_bytes: int = 1 << 20
    start: int = 0

    @property
    def is_filtered(self) -> bool:
        return self.level is not None or self.wants is not None

    def beyond(self, page: EventPage) -> EventPlace:
        """Return the place of the page that follows one."""
        return replace(self, start=page.end, after_seq=0)

    def fits(self, level: object, name: str) -> bool:
        return (self.level is None or level == self.level) and (self.wants is None or self.wants(name))

    def window(self, total: int) -> tuple[int, int]:
        """Return the first of so many fitting events that is on the page, and the first after it."""
        if self.from_end:
            last = max(0, total - self.offset)
            return max(0, last - self.limit), last
        return min(self.offset, total), min(self.offset + self.limit, total)

    def has_more(self, first: int, last: int, total: int) -> bool:
        return first > 0 if self.from_end else last < total

    def page(self, events: Sequence[Event]) -> EventPage:
        """Return the page of events that are all there already."""
        fitting = [
            (position, event)
            for position, event in enumerate(events[self.start :], start=self.start + 1)
            if (not self.after_seq or number_of(event) > self.after_seq)
            and self.fits(event.get("lvl"), str(event.get("event")))
        ]
        first, last = self.window(len(fitting))
        part = fitting[first:last]
        end = part[-1][0] if part else len(events)
        return EventPage([event for _, event in part], len(fitting), self.has_more(first, last, len(fitting)), end)


ReadPage = Callable[[str, EventPlace], Awaitable[EventPage]]
"""Returns a page of the events of a session."""

ALL = EventPlace(_AT_ONCE)
"""All events, from the first on."""


async def event_batches(
    read_page: ReadPage, session_id: str, place: EventPlace = ALL
) -> AsyncGenerator[Sequence[Event], None]:
    """Yield the events of a session that fit, a bounded part at a time; limit and offset of the place do not count."""
    following = replace(place, limit=_AT_ONCE, offset=0, counted=False)
    while True:
        page = await read_page(session_id, following)
        if page.events:
            yield page.events
        if not page.has_more:
            return
        following = following.beyond(page)


async def named_events(read_page: ReadPage, session_id: str, names: Collection[str]) -> list[Event]:
    """Return the events of a session with these names; the others are passed by, a bounded part at a time."""
    place = EventPlace(_AT_ONCE, wants=names.__contains__)
    async with aclosing(event_batches(read_page, session_id, place)) as batches:
        return [event async for batch in batches for event in batch]


async def merged_events(
    read_page: ReadPage, session_ids: Sequence[str], place: EventPlace = ALL
) -> AsyncGenerator[Event, None]:
    """Yield the events of several sessions in the order of their numbers; a few of each are held at a time."""
    streams = [_events(read_page, session_id, place) for session_id in session_ids]
    waiting: list[tuple[int, int, Event]] = []
    try:
        for number, stream in enumerate(streams):
            if (event := await anext(stream, None)) is not None:
                waiting.append((number_of(event), number, event))
        heapify(waiting)
        while waiting:
            _, number, event = waiting[0]
            yield event
            following = await anext(streams[number], None)
            if following is None:
                heappop(waiting)
            else:
                heapreplace(waiting, (number_of(following), number, following))
    finally:
        for stream in streams:
            await stream.aclose()


async def tree_page(read_page: ReadPage, session_ids: Sequence[str], place: EventPlace) -> EventPage:
    """Return a page of the events of several sessions together."""
    counted = replace(place, limit=0, offset=0)
    total = sum([(await read_page(session_id, counted)).total for session_id in session_ids])
    first, last = place.window(total)
    events: list[Event] = []
    async with aclosing(merged_events(read_page, session_ids, place)) as merged:
        number = 0
        while number < last and (event := await anext(merged, None)) is not None:
            if number >= first:
                events.append(event)
            number += 1
    return EventPage(events, total, place.has_more(first, last, total))


async def _events(read_page: ReadPage, session_id: str, place: EventPlace) -> AsyncGenerator[Event, None]:
    async with aclosing(event_batches(read_page, session_id, place)) as batches:
        async for batch in batches:
            for event in batch:
                yield event


def number_of(event: Event) -> int:
    """Return the number of an event, 0 when it has none."""
    number = event.get("seq")
    return number if isinstance(number, int) else 0
