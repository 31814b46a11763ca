"""Where all events come together: numbered for all sessions, remembered for a while, and handed to all watchers.

Everything here happens on the event loop of the daemon and without waiting: no one who watches can hold up a turn.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from amplifierd.exceptions import TooManySubscribersError
from amplifierd.sessions.layers.uncounted_usage import TURN_DONE
from amplifierd.store.cursor import Cursor

from .published_event import EventFilter, PublishedEvent, daemon_event
from .subscriber import Missing, StreamLimits, Subscriber

_ENDS = 32
_ENDS_OF_ROOTS = 1000

Visible = Callable[[PublishedEvent], bool]
"""Says whether a client may see an event."""


class EventHub:
    """The events of one daemon. The ring of a tree forgets first those that were active longest ago."""

    def __init__(self, boot_id: str, limits: StreamLimits | None = None) -> None:
        self.boot_id = boot_id
        self.limits = limits or StreamLimits()
        self.dropped = 0
        self._everything = EventRing(0, max_events=self.limits.ring_events, max_bytes=self.limits.ring_bytes)
        self._rings: OrderedDict[str, EventRing] = OrderedDict()
        self._rings_size = 0
        self._unpublished_ends: OrderedDict[str, dict[str, PublishedEvent]] = OrderedDict()
        self._ancestry = SessionAncestry()
        self._of_all: dict[Subscriber, None] = {}
        self._of_root: dict[str, dict[Subscriber, str]] = {}
        self._is_closed = False

    # --- what happens

    def publish(self, event: PublishedEvent) -> None:
        """Hand on an event of a session. Those of a tree come in the order of their cursors."""
        root_id = event.root_id
        if root_id is not None and event.cursor is not None:
            self._ancestry.learn(event)
            if not self._remember(root_id, event, event.cursor):
                return
        elif root_id is not None and event.name == TURN_DONE:
            self._remember_end(root_id, event)
        self._hand_out(event)

    def tell(
        self, name: str, data: Mapping[str, Any], *, session_id: str | None = None, root_id: str | None = None
    ) -> None:
        """Hand on an event of the daemon itself; one about a session reaches those who watch it at this moment."""
        self._hand_out(daemon_event(name, data, session_id=session_id, root_id=root_id or session_id))

    def tell_owners(self, owners: Iterable[str], name: str, data: Mapping[str, Any]) -> None:
        """Hand on an event of the daemon itself to those whom it is about."""
        self._hand_out(daemon_event(name, data, owners=frozenset(owners)))

    def relay(self, event: PublishedEvent) -> None:
        """Hand an event of another member to those who watch everything; streams of sessions follow them there."""
        event.is_relayed = True
        self._ancestry.learn(event)
        self._hand_out(event)

    def hear_end(self, event: PublishedEvent) -> None:
        """Tell those who watch a tree how a turn ended that another member refused, unless they were told before.

        Those who watch everything hear of it from that member.
        """
        if event.root_id is not None and self._remember_end(event.root_id, event):
            for subscriber in self._of_root.get(event.root_id, ()):
                subscriber.offer(event)

    def forget(self, root_id: str) -> None:
        """Let go of a tree that is gone; those who watched it are done."""
        self._drop_ring(root_id)
        self._unpublished_ends.pop(root_id, None)
        self._ancestry.forget(root_id)
        for subscriber in self._of_root.pop(root_id, {}):
            subscriber.close()

    def close(self) -> None:
        """Say goodbye to everyone."""
        if not self._is_closed:
            self.tell("daemon:shutdown", {})
            self._is_closed = True
            for subscriber in self._subscribed():
                subscriber.close()

    def _hand_out(self, event: PublishedEvent) -> None:
        event.number = self._everything.last + 1
        self._everything.add(event, event.number)
        for subscriber in self._of_all:
            subscriber.offer(event)
        if event.root_id is not None and not event.is_relayed:
            for subscriber in self._of_root.get(event.root_id, ()):
                subscriber.offer(event)

    def _remember(self, root_id: str, event: PublishedEvent, cursor: Cursor) -> bool:
        """Keep an event for those who come back; False for a piece that comes too late to be of use to anyone."""
        ring, stored = self._rings.get(root_id), cursor.stored_before
        if ring is None:
            ring = self._rings[root_id] = EventRing(
                stored, max_events=self.limits.ring_events, max_bytes=self.limits.ring_bytes
            )
            self._forget_rings()
            for subscriber in self._of_root.get(root_id, ()) if stored else ():
                subscriber.put(Missing(0, stored))  # what was stored, and told to no one, since they began
        elif cursor.piece and ring.cursor.covers(cursor):
            return False
        elif stored != ring.last:
            self._skip(root_id, ring, cursor)
        before = ring.size
        ring.add(event, cursor.seq)
        self._rings_size += ring.size - before
        self._rings.move_to_end(root_id)
        self._make_room()
        return True

    def _remember_end(self, root_id: str, event: PublishedEvent) -> bool:
        """Keep the end of a turn that is stored nowhere, for those who come back to wait for it; False if it was."""
        ends, turn = self._unpublished_ends.setdefault(root_id, {}), str(event.envelope().get("correlation_id"))
        is_new = turn not in ends
        ends.setdefault(turn, event)
        if len(ends) > _ENDS:
            del ends[next(iter(ends))]
        self._unpublished_ends.move_to_end(root_id)
        if len(self._unpublished_ends) > _ENDS_OF_ROOTS:
            self._unpublished_ends.popitem(last=False)
        return is_new

    def _skip(self, root_id: str, ring: EventRing, cursor: Cursor) -> None:
        """Begin a ring anew: what lies between was told to no one here, but may be stored."""
        stored, last, self._rings_size = cursor.stored_before, ring.last, self._rings_size - ring.size
        ring.clear(stored)
        gap = {"requested": None, "resumed_at": cursor.seq, "session_id": root_id, "reason": "missed"}
        for subscriber in self._of_root.get(root_id, ()):
            if stored > last:
                subscriber.put(Missing(last, stored))
            else:
                anew = gap | {"reason": "begun-anew"}
                subscriber.put(daemon_event("stream:gap", anew, root_id=root_id, cursor=Cursor(0, stored)))
        for subscriber in self._of_all:
            subscriber.offer(daemon_event("stream:gap", gap, root_id=root_id))

    def forget_ring(self, root_id: str) -> None:
        """Let go of what was remembered of a tree that went on elsewhere; what is stored can still be watched."""
        self._drop_ring(root_id)

    def _drop_ring(self, root_id: str) -> EventRing | None:
        ring = self._rings.pop(root_id, None)
        self._rings_size -= ring.size if ring is not None else 0
        return ring

    def _forget_rings(self) -> None:
        """Let go of trees that were active longest ago; what is stored can still be watched."""
        surplus = len(self._rings) - self.limits.rings
        unwatched = (root_id for root_id in self._rings if root_id not in self._of_root)
        for root_id in [*islice(unwatched, surplus)] if surplus > 0 else ():
            self._drop_ring(root_id)
            self._ancestry.forget(root_id)

    def _make_room(self) -> None:
        for ring in self._rings.values():
            if self._rings_size <= self.limits.all_rings_bytes:
                return
            self._rings_size -= ring.size
            ring.clear()

    # --- who watches

    @property
    def subscribers(self) -> int:
        return len(self._of_all) + sum(len(watching) for watching in self._of_root.values())

    @property
    def watches_everything(self) -> bool:
        """True if a client watches all sessions."""
        return bool(self._of_all)

    @property
    def waiting(self) -> int:
        """How many events those who watch have not taken yet."""
        return sum(one.waiting for one in self._subscribed())

    def ring(self, root_id: str) -> EventRing | None:
        return self._rings.get(root_id)

    def unpublished_ends(self, root_id: str) -> tuple[PublishedEvent, ...]:
        """Return how turns of a tree ended that no session could tell, the latest ones."""
        return tuple(self._unpublished_ends.get(root_id, {}).values())

    @property
    def everything(self) -> EventRing:
        return self._everything

    def is_within(self, session_id: str | None, ancestor: str) -> bool:
        """True if a session is another one or lies below it."""
        return self._ancestry.is_within(session_id, ancestor)

    def _is_below(self, session_id: str | None, sessions: frozenset[str]) -> bool:
        return any(self.is_within(session_id, watched) for watched in sessions)

    def watch(
        self, session_id: str, root_id: str, names: EventFilter, *, children: bool = True, owner: str = ""
    ) -> Subscriber:
        """Watch a session from now on, by default with everything below it. The place counts as one of `owner`'s.

        Raises:
            TooManySubscribersError: as many watch already as may.
        """
        watching = self._of_root.get(root_id, {})
        if sum(watched == session_id for watched in watching.values()) >= self.limits.subscribers_per_session:
            raise TooManySubscribersError(f"session {session_id} is watched by too many clients")
        self._check_room(owner)

        def wants(event: PublishedEvent) -> bool:
            if not names.passes(event.name):
                return False
            return self.is_within(event.session_id, session_id) if children else event.session_id == session_id

        subscriber = Subscriber(self.limits, wants, owner)
        self._of_root.setdefault(root_id, {})[subscriber] = session_id
        return subscriber

    def watch_all(
        self,
        names: EventFilter,
        may_see: Visible,
        *,
        sessions: frozenset[str] = frozenset(),
        children: bool = True,
        owner: str = "",
    ) -> Subscriber:
        """Watch every session that may be seen, or some of them with what is below, and the daemon itself.

        Raises:
            TooManySubscribersError: as many watch already as may.
        """
        self._check_room(owner)

        def wants(event: PublishedEvent) -> bool:
            if not names.passes(event.name):
                return False
            if event.root_id is None:
                return not sessions and may_see(event)
            if sessions and event.session_id not in sessions:
                return children and self._is_below(event.session_id, sessions) and may_see(event)
            return (children or event.session_id in (None, event.root_id) or bool(sessions)) and may_see(event)

        subscriber = Subscriber(self.limits, wants, owner)
        self._of_all[subscriber] = None
        return subscriber

    def leave(self, subscriber: Subscriber) -> None:
        """Watch no longer; what was queued is freed."""
        self.dropped += subscriber.dropped
        subscriber.dropped = 0
        subscriber.close()
        subscriber.clear()
        self._of_all.pop(subscriber, None)
        for root_id, watching in tuple(self._of_root.items()):
            if watching.pop(subscriber, None) is not None and not watching:
                del self._of_root[root_id]

    def _check_room(self, owner: str) -> None:
        """Raise unless there is a place, and for an owner more of them than it has: whoever comes next finds one."""
        free = self.limits.subscribers - self.subscribers
        if self._is_closed or free < 1:
            raise TooManySubscribersError("too many clients are watching events", hint="try again later")
        if owner and sum(one.owner == owner for one in self._subscribed()) >= free:
            raise TooManySubscribersError(
                "you are watching events with too many clients; the places that are free are for others",
                hint="close streams that you do not need",
            )

    def _subscribed(self) -> Iterator[Subscriber]:
        yield from self._of_all
        for watching in self._of_root.values():
            yield from watching


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


class SessionAncestry:
    """The sessions of the trees that were heard of. A session counts as one of its own ancestors."""

    def __init__(self) -> None:
        self._lines: dict[str, frozenset[str]] = {}
        self._members: dict[str, set[str]] = {}

    def learn(self, event: PublishedEvent) -> None:
        """Note where the session of an event belongs."""
        session_id, root_id = event.session_id, event.root_id
        if session_id is None or root_id is None or session_id in self._lines:
            return
        parent_id = event.envelope().get("parent_id") if session_id != root_id else None
        above = self._lines.get(str(parent_id), frozenset({str(parent_id), root_id})) if parent_id else {root_id}
        self._lines[session_id] = frozenset({session_id, *above})
        self._members.setdefault(root_id, set()).add(session_id)

    def is_within(self, session_id: str | None, ancestor: str) -> bool:
        return session_id is not None and (session_id == ancestor or ancestor in self._lines.get(session_id, ()))

    def forget(self, root_id: str) -> None:
        for session_id in self._members.pop(root_id, ()):
            self._lines.pop(session_id, None)
