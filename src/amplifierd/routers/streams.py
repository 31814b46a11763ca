"""Watching: the events of all sessions, or of one session with everything below it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Header, Query

from amplifierd.daemon.callers import Caller
from amplifierd.daemon.daemon import Daemon
from amplifierd.daemon.event_filter import EventFilter, Preset
from amplifierd.daemon.event_view import EventView
from amplifierd.daemon.event_watch import EventWatch, GlobalWatch, SessionWatch
from amplifierd.daemon.rendered_watch import RenderedWatch
from amplifierd.daemon.stored_tree import StoredTree
from amplifierd.http.dependencies import Reader, TheDaemon
from amplifierd.http.event_stream import STREAMED, EventStreamResponse
from amplifierd.http.models import problems
from amplifierd.http.routers import api_router
from amplifierd.session_store.record import SessionRecord

router = api_router(tags=["events"])

Patterns = Annotated[str | None, Query(alias="filter", description="names of events, comma-separated, with `*`")]
Chosen = Annotated[Preset | None, Query(description="names of events by purpose; joined with `filter`")]
Children = Annotated[bool, Query(description="also events of sessions that agents run in")]
Replay = Annotated[int, Query(ge=0, le=10_000, description="begin with the last events")]
After = Annotated[str | None, Query(max_length=200, description="begin after the event with this id")]
LastEventId = Annotated[str | None, Header(max_length=200, description="as `after`; browsers send it")]
Rendered = Annotated[Literal["html"] | None, Query(description="`html`: messages and blocks carry their HTML as well")]
Watched = Annotated[list[str] | None, Query(description="only these sessions, and what is below them")]


@router.get("/events", status_code=200, response_class=EventStreamResponse, responses=STREAMED)
async def watch_all(
    daemon: TheDaemon,
    caller: Reader,
    session: Watched = None,
    names: Patterns = None,
    preset: Chosen = None,
    children: Children = True,
    replay: Replay = 0,
    after: After = None,
    render: Rendered = None,
    last_event_id: LastEventId = None,
) -> EventStreamResponse:
    """Watch all sessions that the caller may see, and the daemon itself, as server-sent events."""
    for session_id in session or ():
        await daemon.access.get(caller, session_id)
    watch = GlobalWatch(
        daemon.events,
        EventFilter.read(names, preset),
        EventView(daemon.access, caller),
        sessions=frozenset(session or ()),
        children=children,
        after=after if last_event_id is None else last_event_id,
        replay=replay,
    )
    return _streamed(daemon, caller, watch, render)


@router.get(
    "/sessions/{session_id}/stream",
    status_code=200,
    response_class=EventStreamResponse,
    responses={**STREAMED, **problems(404)},
    tags=["sessions"],
)
async def watch_session(
    daemon: TheDaemon,
    caller: Reader,
    session_id: str,
    names: Patterns = None,
    preset: Chosen = None,
    children: Children = True,
    replay: Replay = 0,
    after: After = None,
    render: Rendered = None,
    last_event_id: LastEventId = None,
) -> EventStreamResponse:
    """Watch a session and everything below it, as server-sent events; with an id, from the event after it on."""
    record = await daemon.access.get(caller, session_id)
    begin = after if last_event_id is None else last_event_id
    chosen = EventFilter.read(names, preset)
    watch = session_watch(daemon, record, chosen, children=children, after=begin, replay=replay)
    return _streamed(daemon, caller, watch, render)


def _streamed(daemon: Daemon, caller: Caller, watch: EventWatch, render: str | None) -> EventStreamResponse:
    shown = RenderedWatch(watch, daemon.renderer) if render == "html" else watch
    keepalive_s = daemon.home.settings.stream.keepalive_seconds
    return EventStreamResponse(shown, keepalive_s, is_allowed=lambda: daemon.knows(caller))


def session_watch(
    daemon: Daemon, record: SessionRecord, names: EventFilter, *, children: bool = True, **begin: Any
) -> SessionWatch:
    """Return a watch on a session, which tells whoever connects what the session does."""
    session_id, root_id = record.session_id, record.root_id
    stored = StoredTree(daemon.home.sessions.runtime.store, session_id, root_id, names, children=children)

    def facts() -> dict[str, Any]:
        state = daemon.live.state(session_id)
        pending = [dict(approval) for approval in state.pending_approvals] if state else []
        return {"activity": state.activity if state else None, "pending_approvals": pending}

    return SessionWatch(daemon.events, stored, session_id, root_id, names, children=children, facts=facts, **begin)


async def latest_sequence(daemon: Daemon, record: SessionRecord) -> int:
    """Return the number of the latest event of a session's tree."""
    known = daemon.events.last_sequence(record.root_id)
    if known is not None:
        return known
    store = daemon.home.sessions.runtime.store
    return await StoredTree(store, record.session_id, record.root_id, EventFilter()).last_sequence()
