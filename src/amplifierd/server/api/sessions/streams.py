"""Watching: the events of all sessions, or of one session with everything below it."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Header, Query, Request

from amplifierd.server.auth.callers import Caller
from amplifierd.server.auth.session_access import EventView
from amplifierd.server.daemon import Daemon
from amplifierd.server.events.event_watch import GlobalWatch, Watch
from amplifierd.server.events.published_event import EventFilter, Preset
from amplifierd.server.events.rendered_watch import RenderedWatch
from amplifierd.server.events.session_streams import session_watch
from amplifierd.server.http.dependencies import Reader, TheDaemon
from amplifierd.server.http.event_stream import STREAMED, EventStreamResponse
from amplifierd.server.http.member_gate import is_relayed
from amplifierd.server.http.models import problems
from amplifierd.server.http.routers import api_router

router = api_router(tags=["events"])

Patterns = Annotated[str | None, Query(alias="filter", description="names of events, comma-separated, with `*`")]
Chosen = Annotated[Preset | None, Query(description="names of events by purpose; joined with `filter`")]
Children = Annotated[bool, Query(description="also events of sessions that agents run in")]
Replay = Annotated[int, Query(ge=0, le=10_000, description="begin with the last events")]
After = Annotated[
    str | None,
    Query(max_length=200, description="begin after the event with this id, or, in a session, after this `sequence`"),
]
LastEventId = Annotated[str | None, Header(max_length=200, description="as `after`; browsers send it")]
Rendered = Annotated[Literal["html"] | None, Query(description="`html`: messages and blocks carry their HTML as well")]
Watched = Annotated[list[str] | None, Query(description="only these sessions, and what is below them")]


@router.get(
    "/events",
    status_code=200,
    response_class=EventStreamResponse,
    responses={**STREAMED, **problems(404, 409)},
)
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
    if daemon.elsewhere is not None:
        await daemon.elsewhere.events.follow()
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
    responses=STREAMED,
    tags=["sessions"],
)
async def watch_session(
    daemon: TheDaemon,
    caller: Reader,
    request: Request,
    session_id: str,
    names: Patterns = None,
    preset: Chosen = None,
    children: Children = True,
    replay: Replay = 0,
    after: After = None,
    render: Rendered = None,
    last_event_id: LastEventId = None,
) -> EventStreamResponse:
    """Watch a session and everything below it, as server-sent events; with an id, from the event after it on.

    In a cluster it is watched wherever it is, and the stream goes on when another member takes it over.
    """
    record = await daemon.access.get(caller, session_id)
    begin = after if last_event_id is None else last_event_id
    chosen = EventFilter.read(names, preset)
    watch = await session_watch(
        daemon,
        caller,
        record,
        chosen,
        children=children,
        after=begin,
        replay=replay,
        is_relayed=is_relayed(request),
        address=request.state.address,
    )
    return _streamed(daemon, caller, watch, render)


def _streamed(daemon: Daemon, caller: Caller, watch: Watch, render: str | None) -> EventStreamResponse:
    shown = RenderedWatch(watch, daemon.renderer) if render == "html" else watch
    keepalive_s = daemon.home.settings.stream.keepalive_seconds
    return EventStreamResponse(shown, keepalive_s, is_allowed=lambda: daemon.knows(caller))
