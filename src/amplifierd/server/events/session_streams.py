"""Watching a session wherever it is: in this daemon, or at another member."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlencode

from amplifier_system.tasks import start_task
from amplifierd.cluster.destination import Destination
from amplifierd.cluster.session_locations import SessionLocations, WatchedTree, daemon_at
from amplifierd.exceptions import MemberError, MemberUntrustedError, StoreUnavailableError, TooManySubscribersError
from amplifierd.problems import public_document
from amplifierd.server.auth.callers import Caller, carried
from amplifierd.server.daemon import Daemon
from amplifierd.sessions.events.announcements import DELETED
from amplifierd.sessions.layers.uncounted_usage import TURN_DONE
from amplifierd.store.cursor import Cursor
from amplifierd.store.record import NOWHERE, SessionRecord

from .event_watch import Batch, SessionWatch, Watch
from .published_event import EventFilter, PublishedEvent, daemon_event
from .relayed_events import batches_of, relayed_events
from .stored_tree import StoredTree


async def session_watch(
    daemon: Daemon,
    caller: Caller,
    record: SessionRecord,
    names: EventFilter,
    *,
    children: bool = True,
    after: str | None = None,
    replay: int = 0,
    is_relayed: bool = False,
    address: str = "",
) -> Watch:
    """Return a watch on a session, which tells a client what the session does, by default from now on.

    `after` is the id of the event after which it begins. In a cluster it follows the session to wherever that is; one
    that `is_relayed`, for another member, does not.

    Raises:
        TooManySubscribersError: as many watch already as may.
    """
    if daemon.cluster is None or is_relayed:
        await forget_old_ring(daemon, record)
        return watch_here(daemon, caller, record, names, children=children, after=after, replay=replay)
    following = following_watch(
        daemon, caller, record, names, children=children, after=after, replay=replay, address=address
    )
    await following.begin()
    return following


def watch_here(
    daemon: Daemon, caller: Caller, record: SessionRecord, names: EventFilter, *, children: bool = True, **begin: Any
) -> SessionWatch:
    """Return a watch on what happens to a session in this daemon."""
    session_id, root_id = record.session_id, record.root_id
    stored = StoredTree(daemon.home.sessions.runtime.store, session_id, root_id, names, children=children)

    def facts() -> dict[str, Any]:
        state = daemon.live.state(session_id)
        pending = [dict(approval) for approval in state.pending_approvals] if state else []
        return {"activity": state.activity if state else None, "pending_approvals": pending}

    begin |= {"children": children, "facts": facts, "owner": caller.streams_of}
    return SessionWatch(daemon.events, stored, session_id, root_id, names, **begin)


def following_watch(
    daemon: Daemon,
    caller: Caller,
    record: SessionRecord,
    names: EventFilter,
    *,
    children: bool = True,
    after: str | None = None,
    replay: int = 0,
    address: str = "",
) -> FollowingWatch:
    """Return a watch that follows a session from member to member."""
    cluster = daemon.cluster
    assert cluster is not None
    asked: dict[str, Any] = {"filter": ",".join(names.patterns), "children": str(children).lower()}

    def begin(position: str | None) -> dict[str, Any]:
        if position is not None:
            return {"after": position}
        return {"replay": replay} | ({} if after is None else {"after": after})

    async def open_here(position: Cursor | None) -> SessionWatch:
        await forget_old_ring(daemon, record)
        known = None if position is None else str(position)
        return watch_here(daemon, caller, record, names, children=children, **begin(known))

    @asynccontextmanager
    async def open_there(to: Destination, position: Cursor | None) -> AsyncIterator[AsyncIterator[Batch]]:
        known = None if position is None else str(position.seq)  # pieces that come again are known here
        target = f"/api/v1/sessions/{record.session_id}/stream?{urlencode(asked | begin(known))}"
        async with cluster.peers.send(to, "GET", target, caller=carried(caller, address)) as response:
            if response.status_code != 200:
                raise MemberError(f"{to.address} answered {response.status_code} to who watches {record.session_id}")
            yield batches_of(relayed_events(response.aiter_raw()))

    return FollowingWatch(
        cluster.locations, lambda: cluster.member_id, record.session_id, record.root_id, open_here, open_there
    )


async def forget_old_ring(daemon: Daemon, record: SessionRecord) -> None:
    """Let go of what was heard of a tree here, if it was at another member since."""
    if daemon.cluster is None or any(daemon.live.state(one) for one in (record.root_id, record.session_id)):
        return
    ring = daemon.events.ring(record.root_id)
    if ring is not None:
        stored = StoredTree(daemon.home.sessions.runtime.store, record.session_id, record.root_id, EventFilter())
        if (await stored.last_cursor()).seq > ring.last:
            daemon.events.forget_ring(record.root_id)


async def latest_sequence(daemon: Daemon, record: SessionRecord) -> int:
    """Return the number of the latest stored event of a session's tree."""
    await forget_old_ring(daemon, record)
    if (ring := daemon.events.ring(record.root_id)) is not None:
        return ring.last
    store = daemon.home.sessions.runtime.store
    return (await StoredTree(store, record.session_id, record.root_id, EventFilter()).last_cursor()).seq


# One stream of a session, whichever member holds it: what comes from one place after the other, without a seam.
#
# A leg ends when the tree has another place, or with the member that it came from. The next one begins after the
# last event that was passed on, from the ring or the store of the member that holds the tree then.


logger = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 1.0
_ENDS_KNOWN = 256
_MOST_SILENT = 3
"""How many times another member may let the moment pass at which it has to show that it lives."""

OVERFLOW = "stream:overflow"

OpenHere = Callable[[Cursor | None], Awaitable[SessionWatch]]
"""Begins to watch here, after an event that was passed on, or as the client asked for it."""

OpenThere = Callable[[Destination, Cursor | None], AbstractAsyncContextManager[AsyncIterator[Batch]]]
"""The same at another member."""


class FollowingWatch:
    """The events of a session, each once and in order. It ends with the session, or with this daemon.

    `own_id` returns which member this is.
    """

    def __init__(
        self,
        locations: SessionLocations,
        own_id: Callable[[], str],
        session_id: str,
        root_id: str,
        open_here: OpenHere,
        open_there: OpenThere,
    ) -> None:
        self._locations, self._own_id = locations, own_id
        self._session_id, self._root_id = session_id, root_id
        self._open_here, self._open_there = open_here, open_there
        self._here: SessionWatch | None = None
        self._first: AsyncIterator[Batch] | None = None
        self._place = NOWHERE
        self._position: Cursor | None = None
        self._is_over = False
        self._ends_passed_on: deque[tuple[str | None, Any]] = deque(maxlen=_ENDS_KNOWN)

    async def begin(self) -> None:
        """Find the session; if it is here, what happens from now on is watched.

        Raises:
            TooManySubscribersError: as many watch already as may.
        """
        self._place = await self._locations.find(self._root_id)
        if self._elsewhere is None:
            self._here = await self._open_here(None)

    @property
    def _elsewhere(self) -> Destination | None:
        return daemon_at(self._place, beside=self._own_id())

    @property
    def _ends(self) -> bool:
        return self._is_over or self._locations.is_closed

    async def go_on_from(self, position: Cursor, to: Destination, first: AsyncIterator[Batch] | None) -> None:
        """Begin after a position, with events that come from a member already, if it still has the session."""
        self._position, self._place = position, await self._locations.find(self._root_id)
        self._first = first if self._elsewhere == to else None

    @property
    def is_overflowed(self) -> bool:
        return self._here is not None and self._here.is_overflowed

    def frame(self, event: PublishedEvent) -> bytes:
        return event.frame()

    def close(self) -> None:
        self._is_over = True
        if self._here is not None:
            self._here.close()

    async def batches(self, keepalive_s: float) -> AsyncGenerator[Batch, None]:
        pause_s = _FIRST_PAUSE_S
        while not self._ends:
            to = self._elsewhere
            with self._locations.watching(self._root_id, self._place) as watched:
                async with aclosing(self._leg(to, watched, keepalive_s)) as leg:
                    async for batch in leg:
                        pause_s = _FIRST_PAUSE_S if batch else pause_s
                        if (kept := self._kept(batch)) or not batch:
                            yield kept
                        if self._ends:
                            return
            if watched.place == self._place and not self._ends:  # its member was lost, or has given the session up
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                with suppress(StoreUnavailableError):  # it is looked for again
                    self._place = await self._locations.find(self._root_id)
            else:
                self._place = watched.place

    async def _leg(
        self, to: Destination | None, watched: WatchedTree, keepalive_s: float
    ) -> AsyncGenerator[Batch, None]:
        """Yield what comes from one place, until the tree has another one."""
        events = self._from_here(keepalive_s) if to is None else self._from_there(to)
        patience_s = None if to is None else keepalive_s
        moved = start_task(watched.changed())
        coming = start_task(_next(events))
        silent = 0
        try:
            while True:
                done, _ = await asyncio.wait((moved, coming), timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
                if coming in done:
                    if (batch := coming.result()) is None:
                        self._is_over = self._is_over or to is None
                        return
                    yield batch
                    coming, silent = start_task(_next(events)), 0
                elif moved in done:
                    return
                elif silent == _MOST_SILENT:
                    logger.info("session %s is looked for again: its member says nothing", self._session_id)
                    return
                else:
                    silent += 1
                    yield ()
        finally:
            for task in (moved, coming):
                task.cancel()
            await asyncio.gather(moved, coming, return_exceptions=True)
            await events.aclose()

    async def _from_here(self, keepalive_s: float) -> AsyncGenerator[Batch, None]:
        try:
            watch = self._here = self._here or await self._open_here(self._position)
        except TooManySubscribersError as error:  # or this daemon is about to end; the watcher asks again
            logger.info("session %s is not watched on: %s", self._session_id, error)
            return
        try:
            async for batch in watch.batches(keepalive_s):
                yield batch
        finally:
            if not watch.is_overflowed:
                watch.close()
                self._here = None

    async def _from_there(self, to: Destination) -> AsyncGenerator[Batch, None]:
        try:
            if self._first is not None:
                first, self._first = self._first, None
                async for batch in first:
                    yield batch
                return
            async with self._open_there(to, self._position) as events:
                async for batch in events:
                    yield [event for event in batch if event.name != OVERFLOW]  # what it lost is asked for again
        except MemberUntrustedError as error:
            if await self._is_at(to):
                yield [daemon_event("stream:error", public_document(error), root_id=self._root_id)]
                self._is_over = True
        except (MemberError, ValueError, KeyError, TypeError) as error:  # the latter: it is not a stream of events
            logger.info("session %s is looked for again: %s", self._session_id, error)

    async def _is_at(self, to: Destination) -> bool:
        """True if a member still has the session: one that was shut out has joined anew, under another name."""
        try:
            place = await self._locations.find(self._root_id)
        except StoreUnavailableError:  # it is looked for again
            return False
        return daemon_at(place, beside=self._own_id()) == to

    def _kept(self, batch: Batch) -> Batch:
        """Return what is passed on of a batch: each event once, and the beginning of the stream once."""
        kept: list[PublishedEvent] = []
        for event in batch:
            if event.name == "stream:connected":
                if self._position is None:
                    kept.append(event)
                    self._position = event.cursor or Cursor(0, _whole(_data(event).get("sequence")))
            elif event.name == "stream:gap":
                kept.append(event)
                self._position = event.cursor or _resumed(_data(event))
            elif event.cursor is None:
                if event.name != TURN_DONE or self._note_end(event):
                    kept.append(event)
            elif self._position is None or not self._position.covers(event.cursor):
                kept.append(event)
                self._position = event.cursor
                if event.name == TURN_DONE:
                    self._note_end(event)
            if event.name == DELETED and event.session_id == self._session_id:
                self._is_over = True
        return kept

    def _note_end(self, event: PublishedEvent) -> bool:
        """Take note that the end of a turn is passed on; False if it was before, as each member tells it once more."""
        end = event.session_id, event.envelope().get("correlation_id")
        if end in self._ends_passed_on:
            return False
        self._ends_passed_on.append(end)
        return True


async def _next(events: AsyncIterator[Batch]) -> Batch | None:
    return await anext(events, None)


def _data(event: PublishedEvent) -> dict[str, Any]:
    data = event.envelope().get("data")
    return data if isinstance(data, dict) else {}


def _resumed(gap: Mapping[str, Any]) -> Cursor:
    """Return where a stream goes on after the gap that a member of an older version tells of."""
    resumed = _whole(gap.get("resumed_at"))
    return Cursor(0, resumed - 1 if gap.get("reason") == "begun-anew" else resumed)


def _whole(number: object) -> int:
    return number if isinstance(number, int) else 0
