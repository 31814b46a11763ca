"""Watching a session wherever it is: in this daemon, or at another member."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

from amplifierd.cluster.destination import Destination
from amplifierd.exceptions import MemberError
from amplifierd.session_store.cursor import Cursor
from amplifierd.session_store.record import SessionRecord

from .callers import Caller
from .carried_caller import carried
from .daemon import Daemon
from .event_filter import EventFilter
from .event_watch import Batch, SessionWatch, Watch
from .relayed_events import batches_of, relayed_events
from .stitched_watch import StitchedWatch
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
    stitched = stitched_watch(
        daemon, caller, record, names, children=children, after=after, replay=replay, address=address
    )
    await stitched.begin()
    return stitched


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


def stitched_watch(
    daemon: Daemon,
    caller: Caller,
    record: SessionRecord,
    names: EventFilter,
    *,
    children: bool = True,
    after: str | None = None,
    replay: int = 0,
    address: str = "",
) -> StitchedWatch:
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

    return StitchedWatch(
        cluster.whereabouts, lambda: cluster.member_id, record.session_id, record.root_id, open_here, open_there
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
