"""What other members have to say: what happens there, what their sessions do, and what they know of operations."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from amplifier_system.tasks import Supervisor, cancelled, start_task
from amplifierd.cluster.destination import Destination
from amplifierd.cluster.session_locations import daemon_at
from amplifierd.exceptions import MemberError, SessionError
from amplifierd.server.auth.callers import Caller, carried
from amplifierd.server.events.event_hub import EventHub
from amplifierd.server.events.published_event import EventFilter, PublishedEvent
from amplifierd.server.events.relayed_events import relayed_events
from amplifierd.server.events.stored_tree import StoredTree
from amplifierd.store.cursor import Cursor
from amplifierd.store.record import Activity, SessionRecord

if TYPE_CHECKING:
    from amplifierd.cluster.cluster import Cluster

logger = logging.getLogger(__name__)

MEMBER = Caller("cluster", "cluster", "admin", via="member")
"""A member that asks for itself."""


class Elsewhere:
    """The other members, for requests about everything."""

    def __init__(self, cluster: Cluster, hub: EventHub) -> None:
        own = carried(MEMBER, "")
        self._cluster = cluster
        self.events = MemberEvents(cluster, hub, own)
        self.states = StatesElsewhere(cluster, own)

    async def ask(self, target: str, caller: Caller | None, address: str) -> dict[Destination, dict[str, Any]]:
        """Return what every other daemon answers to a caller's question; one that cannot answer it is left out."""
        found, others = carried(caller, address), self._cluster.view.daemons(beside=self._cluster.member_id)
        answers = await asyncio.gather(*(self._ask_one(to, target, found) for to in others))
        return {to: answer for to, answer in zip(others, answers, strict=True) if answer is not None}

    async def who_knows(self, target: str, caller: Caller | None, address: str) -> Destination | None:
        """Return the daemon that has an answer to a caller's question."""
        return next(iter(await self.ask(target, caller, address)), None)

    async def _ask_one(self, to: Destination, target: str, caller: str) -> dict[str, Any] | None:
        try:
            return await self._cluster.peers.ask(to, target, caller=caller)
        except MemberError as error:
            logger.debug("%s does not answer %s: %s", to.address, target, error)
            return None

    async def close(self) -> None:
        await self.events.close()


# What happens at other members, for clients that watch all sessions here: passed on as long as there are any.
#
# Each event of a tree is passed on once and in order. Where a member was lost before all of its events had come,
# those that are missing are read from the store as soon as the tree goes on elsewhere.


EVENTS_TARGET = "/api/v1/cluster/events"
_LOOK_S = 0.5
_LINGER_S = 30.0
_PATIENCE_S = 2.0
_TREES_KNOWN = 20_000


class MemberEvents:
    """Watches the other members. `caller` is the member itself, as it is told to them."""

    def __init__(self, cluster: Cluster, hub: EventHub, caller: str) -> None:
        self._cluster, self._hub, self._caller = cluster, hub, caller
        self._watching: dict[str, _MemberStream] = {}
        self._running: asyncio.Task[None] | None = None
        self._last: OrderedDict[str, Cursor] = OrderedDict()

    async def follow(self) -> None:
        """Be told what happens elsewhere from now on, as long as a client watches everything."""
        if self._running is None or self._running.done():
            self._running = self._cluster.store.supervisor.start("events of other members", self._run)
            self._connect()
        waiting = [start_task(stream.is_connected.wait()) for stream in self._watching.values()]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=_PATIENCE_S)
            for task in late:
                task.cancel()

    async def close(self) -> None:
        await cancelled(self._running)

    async def _run(self) -> None:
        quiet_s = 0.0
        try:
            while quiet_s < _LINGER_S:
                self._connect()
                await asyncio.sleep(_LOOK_S)
                quiet_s = 0.0 if self._hub.watches_everything else quiet_s + _LOOK_S
        finally:
            for stream in self._watching.values():
                stream.task.cancel()
            self._watching.clear()

    def _connect(self) -> None:
        """Watch every other daemon that is there, and no one else."""
        there = {to.member_id: to for to in self._cluster.view.daemons(beside=self._cluster.member_id)}
        for member_id in self._watching.keys() - there.keys():
            self._watching.pop(member_id).task.cancel()
        for member_id in there.keys() - self._watching.keys():
            self._watching[member_id] = _MemberStream(self, there[member_id], self._cluster.store.supervisor)

    async def read(self, stream: _MemberStream) -> None:
        """Pass on what a member tells, until its stream ends."""
        to = stream.to
        target = EVENTS_TARGET if stream.after is None else f"{EVENTS_TARGET}?{urlencode({'after': stream.after})}"
        async with self._cluster.peers.send(to, "GET", target, caller=self._caller) as response:
            if response.status_code != 200:
                raise MemberError(f"{to.address} answered {response.status_code} to who watches its events")
            async for batch in relayed_events(response.aiter_raw()):
                for stream_id, event in batch:
                    if event.name == "stream:connected":
                        stream.after = str(event.envelope()["data"]["sequence"])
                    else:
                        await self._pass_on(event)
                        stream.after = stream_id or stream.after
                stream.is_connected.set()

    async def _pass_on(self, event: PublishedEvent) -> None:
        root_id, cursor = event.root_id, event.cursor
        if root_id is not None and cursor is not None:
            last = self._known(root_id)
            if last is not None and last.covers(cursor):
                return
            if last is not None and cursor.stored_before > last.seq:
                for missed in await self._missed(root_id, last.seq, cursor.stored_before):
                    self._hub.relay(missed)
            self._note(root_id, cursor)
        self._hub.relay(event)

    def _known(self, root_id: str) -> Cursor | None:
        """Return how far the events of a tree were heard of here, wherever they happened."""
        ring, last = self._hub.ring(root_id), self._last.get(root_id)
        if ring is None or (last is not None and last.covers(ring.cursor)):
            return last
        return ring.cursor

    async def _missed(self, root_id: str, after: int, until: int) -> list[PublishedEvent]:
        stored = StoredTree(self._cluster.store, root_id, root_id, EventFilter())
        with suppress(SessionError):
            return await stored.between(after, until)
        return []

    def _note(self, root_id: str, cursor: Cursor) -> None:
        self._last[root_id] = cursor
        self._last.move_to_end(root_id)
        if len(self._last) > _TREES_KNOWN:
            self._last.popitem(last=False)


class _MemberStream:
    """The stream of one member, opened again whenever it breaks."""

    def __init__(self, events: MemberEvents, to: Destination, supervisor: Supervisor) -> None:
        self.to = to
        self.after: str | None = None
        self.is_connected = asyncio.Event()
        self.task = supervisor.start(f"events of {to.member_id}", lambda: self._run(events))

    async def _run(self, events: MemberEvents) -> None:
        while True:
            try:
                await events.read(self)
            except (MemberError, ValueError, KeyError, TypeError) as error:  # the latter: it is not a stream of events
                logger.info("the events of %s are not heard at the moment: %s", self.to.address, error)
            await asyncio.sleep(_LOOK_S)


# What sessions do that other members have at work.


STATES_TARGET = "/api/v1/cluster/states"
_FRESH_S = 0.5


@dataclass(frozen=True)
class StateElsewhere:
    """What a session does at another member, and what it asks."""

    session_id: str
    activity: Activity
    pending_approvals: tuple[Mapping[str, Any], ...] = ()


@dataclass
class _Told:
    at: float
    states: dict[str, StateElsewhere] = field(default_factory=dict)


class StatesElsewhere:
    """Asks other members; what one has said counts for a moment. `caller` is this member, as it is told to them."""

    def __init__(self, cluster: Cluster, caller: str) -> None:
        self._cluster, self._caller = cluster, caller
        self._told: dict[str, _Told] = {}

    async def of(self, records: Collection[SessionRecord]) -> dict[str, StateElsewhere]:
        """Return what those of some sessions do that are elsewhere."""
        roots = {record.root_id for record in records}
        places = await self._cluster.store.places(roots) if roots else {}
        holders = {daemon_at(place, beside=self._cluster.member_id) for place in places.values()}
        known = await self._ask(to for to in holders if to is not None)
        return {record.session_id: known[record.session_id] for record in records if record.session_id in known}

    async def all(self) -> dict[str, StateElsewhere]:
        """Return what all sessions do that are at work elsewhere."""
        return await self._ask(self._cluster.view.daemons(beside=self._cluster.member_id))

    async def _ask(self, members: Iterable[Destination]) -> dict[str, StateElsewhere]:
        found = await asyncio.gather(*map(self._ask_one, members))
        return {session_id: state for states in found for session_id, state in states.items()}

    async def _ask_one(self, to: Destination) -> dict[str, StateElsewhere]:
        found = self._told.get(to.member_id)
        if found is not None and time.monotonic() - found.at < _FRESH_S:
            return found.states
        try:
            answer = await self._cluster.peers.ask(to, STATES_TARGET, caller=self._caller)
        except MemberError as error:
            logger.info("what the sessions of %s do is not known: %s", to.address, error)
            return {}
        states = [
            StateElsewhere(one["session_id"], one["activity"], tuple(one["pending_approvals"]))
            for one in answer["states"]
        ]
        self._told[to.member_id] = _Told(time.monotonic(), {state.session_id: state for state in states})
        return self._told[to.member_id].states
