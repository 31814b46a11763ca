"""One client's way through events: what it missed, and then what happens, each event once and in order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from amplifierd.server.auth.session_access import EventView
from amplifierd.store.cursor import Cursor

from .event_hub import EventHub
from .published_event import EventFilter, PublishedEvent, daemon_event
from .stored_tree import StoredTree
from .subscriber import Item, Missing, Subscriber

Batch = Sequence[PublishedEvent]
"""Events that are there together; none when nothing happened for a while."""

Batches = AsyncGenerator[Batch, None]

Facts = Callable[[], Mapping[str, Any]]

_BEGINNING = Cursor(0, 0)


class Watch(Protocol):
    """What a client watches: batches of events until it is closed, and each as it is on the wire."""

    @property
    def is_overflowed(self) -> bool: ...

    def batches(self, keepalive_s: float) -> AsyncIterator[Batch]: ...

    def frame(self, event: PublishedEvent) -> bytes: ...

    def close(self) -> None: ...


class EventWatch(ABC):
    """Yields batches of events until it is closed, which is up to its creator."""

    def __init__(self, hub: EventHub, subscriber: Subscriber) -> None:
        self._hub, self._subscriber = hub, subscriber

    @property
    def is_overflowed(self) -> bool:
        return self._subscriber.is_overflowed

    async def batches(self, keepalive_s: float) -> AsyncIterator[Batch]:
        async with aclosing(self._opening()) as opening:
            async for batch in opening:
                yield batch
        while not self._subscriber.is_done:
            if not await self._subscriber.news(keepalive_s):
                yield ()
                continue
            async with aclosing(self._resolved(self._subscriber.take())) as batches:
                async for batch in batches:
                    yield batch
        if self._subscriber.is_overflowed:
            yield [daemon_event("stream:overflow", {"dropped": self._subscriber.dropped})]

    @abstractmethod
    def frame(self, event: PublishedEvent) -> bytes:
        """Return an event as this stream has it on the wire."""

    def close(self) -> None:
        self._hub.leave(self._subscriber)

    @abstractmethod
    def _opening(self) -> Batches:
        """Yield what the stream begins with."""

    @abstractmethod
    def _resolved(self, items: Sequence[Item]) -> Batches:
        """Yield what was taken from the queue, with what is missing in it."""


class SessionWatch(EventWatch):
    """A session and what is below it, from the ring and the disk and then live.

    What is published from the moment on at which it is made is in its queue; everything earlier is in the ring or on
    the disk already, since events are stored before they are told.
    """

    def __init__(
        self,
        hub: EventHub,
        stored: StoredTree,
        session_id: str,
        root_id: str,
        names: EventFilter,
        *,
        children: bool = True,
        after: str | None = None,
        replay: int = 0,
        facts: Facts = dict,
        owner: str = "",
    ) -> None:
        """Watch from now on, with what came after the event with the id `after`, or with the last `replay` events."""
        super().__init__(hub, hub.watch(session_id, root_id, names, children=children, owner=owner))
        self._stored, self._session_id, self._root_id = stored, session_id, root_id
        self._after, self._replay, self._facts = after, replay, facts
        self._ends = [event for event in hub.unpublished_ends(root_id) if self._subscriber.wants(event)]
        self._position = (None if after is None else Cursor.parse(after)) or _BEGINNING
        ring = hub.ring(root_id)
        if ring is not None and ring.last < self._position.seq:
            ring = None  # the tree went on elsewhere, and what happened there is stored
        self._floor: int | None = ring.floor if ring is not None else None
        self._last: Cursor | None = ring.cursor if ring is not None else None
        wanted = ring.after(self._is_known) if ring is not None and (after is not None or replay) else []
        self._recent = [event for event in wanted if self._subscriber.wants(event)]

    def frame(self, event: PublishedEvent) -> bytes:
        return event.frame()

    async def _opening(self) -> Batches:
        async with aclosing(self._again() if self._after is not None else self._anew()) as begun:
            async for batch in begun:
                yield batch
        self._recent = []

    async def _anew(self) -> Batches:
        last = self._last or await self._stored.last_cursor()
        data = {"session_id": self._session_id, "sequence": last.seq, **self._facts()}
        connected = daemon_event(
            "stream:connected", data, session_id=self._session_id, root_id=self._root_id, cursor=last
        )
        recent = self._recent[-self._replay :] if self._replay else []
        if missing := self._replay - len(recent):
            recent = [*await self._stored.last(missing, self._floor), *recent]
        self._position = last
        self._pass(recent)
        yield [connected, *recent]

    async def _again(self) -> Batches:
        after = Cursor.parse(self._after or "")
        last = self._last or await self._stored.last_cursor()
        is_lost = after is not None and after.epoch < last.epoch and await self._stored.has_lost(after)
        if after is None or after.seq > last.seq or is_lost:
            self._position = last
            reason = "lost" if is_lost else "unknown" if after is not None else "not-an-id"
            yield [_gap(self._after, last.seq, reason, session_id=self._session_id, root_id=self._root_id, cursor=last)]
            return
        if self._floor is None or after.seq < self._floor:
            async with aclosing(self._fill(Missing(after.seq, self._floor))) as missed:
                async for part in missed:
                    self._pass(part)
                    yield part
        self._pass(self._recent)
        yield [*self._recent, *self._ends]

    async def _fill(self, missing: Missing) -> Batches:
        """Yield what is missing; where its end is not known, up to what has been heard of meanwhile."""
        after = max(missing.after, self._position.seq)
        if missing.until is not None and missing.until <= after:
            return
        async with aclosing(self._stored.parts(after, missing.until)) as parts:
            async for part in parts:
                ring = self._hub.ring(self._root_id)
                if missing.until is None and ring is not None and ring.floor >= after:
                    heard = [event for event in part if event.cursor is not None and event.cursor.seq <= ring.floor]
                    if heard:
                        yield heard
                    if len(heard) < len(part):
                        return
                else:
                    yield part

    def _is_known(self, event: PublishedEvent) -> bool:
        """True if the client has seen an event."""
        return event.cursor is not None and self._position.covers(event.cursor)

    def _pass(self, events: Batch) -> None:
        """Take note of what the client is shown."""
        for event in events[-1:]:
            if event.cursor is not None and not self._position.covers(event.cursor):
                self._position = event.cursor

    async def _resolved(self, items: Sequence[Item]) -> Batches:
        waiting: list[PublishedEvent] = []
        for item in items:
            if isinstance(item, PublishedEvent):
                waiting += self._unknown([item])
                continue
            if waiting:
                yield waiting
                waiting = []
            async with aclosing(self._fill(item)) as missed:
                async for part in missed:
                    if unknown := self._unknown(part):
                        yield unknown
        if waiting:
            yield waiting

    def _unknown(self, events: Batch) -> list[PublishedEvent]:
        """Return what the client has not seen yet, and take note that it is shown."""
        shown: list[PublishedEvent] = []
        for event in events:
            if event.name == "stream:gap":
                self._position = event.cursor or _BEGINNING
                shown.append(event)
            elif not self._is_known(event):
                self._position = event.cursor or self._position
                shown.append(event)
        return shown


class GlobalWatch(EventWatch):
    """Every session that may be seen, and the daemon itself, from the ring and then live."""

    def __init__(
        self,
        hub: EventHub,
        names: EventFilter,
        view: EventView,
        *,
        sessions: frozenset[str] = frozenset(),
        children: bool = True,
        after: str | None = None,
        replay: int = 0,
    ) -> None:
        super().__init__(
            hub, hub.watch_all(names, self._may_see, sessions=sessions, children=children, owner=view.owner)
        )
        self._view = view
        self._unsure: set[str] = set()
        ring = hub.everything
        known = _number_of_boot(after, hub.boot_id)
        if after is None:
            recent = [event for event in ring.after(lambda _: False) if self._subscriber.wants(event)] if replay else []
            facts: dict[str, Any] = {"session_id": None, "sequence": f"{hub.boot_id}-{ring.last}"}
            data = {**facts, "activity": None, "pending_approvals": []}
            self._first = [daemon_event("stream:connected", data), *recent[-replay:]]
        elif known is None or not ring.floor <= known <= ring.last:
            reason = "other-boot" if known is None else "evicted" if known < ring.floor else "unknown"
            self._first = [_gap(after, f"{hub.boot_id}-{ring.last}", reason)]
        else:
            missed = ring.after(lambda event: event.number <= known)
            self._first = [event for event in missed if self._subscriber.wants(event)]

    def frame(self, event: PublishedEvent) -> bytes:
        return event.global_frame(self._hub.boot_id)

    async def _opening(self) -> Batches:
        first, self._first = self._first, []
        yield await self._visible(first)

    async def _resolved(self, items: Sequence[Item]) -> Batches:
        if visible := await self._visible([item for item in items if isinstance(item, PublishedEvent)]):
            yield visible

    def _may_see(self, event: PublishedEvent) -> bool:
        """True if an event may come into the queue; one of a tree that has to be looked up is judged afterwards."""
        answer = self._view.shows(event)
        if answer is None and event.root_id is not None:
            self._unsure.add(event.root_id)
        return answer is not False

    async def _visible(self, events: Batch) -> Batch:
        """Look up what has to be, and leave out what others own."""
        unsure = self._unsure & {event.root_id for event in events}
        if not self._subscriber.waiting:  # no event of theirs is in the queue
            self._unsure.clear()
        hidden = {root_id for root_id in unsure if root_id and not await self._view.shows_tree(root_id)}
        return [event for event in events if event.root_id not in hidden] if hidden else events


def _gap(requested: object, resumed_at: object, reason: str, **of: Any) -> PublishedEvent:
    return daemon_event("stream:gap", {"requested": requested, "resumed_at": resumed_at, "reason": reason}, **of)


def _number_of_boot(text: str | None, boot_id: str) -> int | None:
    boot, _, number = (text or "").rpartition("-")
    return int(number) if boot == boot_id and number.isascii() and number.isdigit() and len(number) < 19 else None


# What one member shows another of everything that happens to its sessions, for those who watch all of them there.


class MemberWatch(GlobalWatch):
    """The events of this daemon's own sessions and of the work that it was asked for, and who may see them."""

    def __init__(self, hub: EventHub, view: EventView, after: str | None) -> None:
        super().__init__(hub, EventFilter(), view, after=after)

    def frame(self, event: PublishedEvent) -> bytes:
        frame = super().frame(event)
        return frame if event.owners is None else b"owners: %b\n%b" % (",".join(sorted(event.owners)).encode(), frame)

    async def _visible(self, events: Batch) -> Batch:
        return [event for event in events if is_for_members(event)]


def is_for_members(event: PublishedEvent) -> bool:
    """True if other members pass an event on: one of a session or of an operation, and nothing else."""
    if event.is_relayed:
        return False
    return event.root_id is not None or event.owners is not None or event.name.startswith("stream:")
