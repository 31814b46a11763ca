"""The events of a turn that another member runs, and how they go on when that member is lost."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import httpx2

from amplifierd.cluster.destination import Destination
from amplifierd.server.auth.callers import Caller
from amplifierd.server.daemon import Daemon
from amplifierd.server.events.published_event import EventFilter
from amplifierd.server.events.relayed_events import batches_of, relayed_events
from amplifierd.server.events.session_streams import following_watch
from amplifierd.store.cursor import Cursor

from .event_stream import CORRELATION, MEDIA_TYPE, EventStreamResponse, turn_stream


async def relayed_turn(
    daemon: Daemon, caller: Caller, session_id: str, response: httpx2.Response, to: Destination, *, is_repeated: bool
) -> EventStreamResponse | None:
    """Return the events that a member answers with; None if its answer is something else.

    A request that `is_repeated`, because its first answer was lost, is answered with where its events are.
    """
    is_stream = response.headers.get("content-type", "").startswith(MEDIA_TYPE)
    if is_stream:
        events_url, correlation_id = response.headers["Location"], response.headers[CORRELATION]
    elif is_repeated and response.status_code == 202:
        await response.aread()
        accepted = response.json()
        events_url, correlation_id = accepted["events_url"], accepted["correlation_id"]
    else:
        return None
    record = await daemon.access.get(caller, session_id)
    after = Cursor(0, int(parse_qs(urlsplit(events_url).query)["after"][0]))
    watch = following_watch(daemon, caller, record, EventFilter())
    await watch.go_on_from(after, to, batches_of(relayed_events(response.aiter_raw())) if is_stream else None)
    return turn_stream(daemon, caller, watch, session_id, correlation_id=correlation_id, events_url=events_url)
