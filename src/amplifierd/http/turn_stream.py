"""The events of one turn as the answer to who submitted it."""

from __future__ import annotations

from starlette.responses import Response

from amplifierd.daemon.callers import Caller
from amplifierd.daemon.daemon import Daemon
from amplifierd.daemon.event_filter import is_control
from amplifierd.daemon.event_watch import Watch
from amplifierd.daemon.published_event import PublishedEvent
from amplifierd.sessions.uncounted_usage import TURN_DONE

from .event_stream import EventStreamResponse

CORRELATION = "X-Correlation-Id"
"""The header that names the turn; `Location` is where its events can be watched again."""


def turn_stream(
    daemon: Daemon,
    caller: Caller,
    watch: Watch,
    session_id: str,
    *,
    correlation_id: str,
    events_url: str,
    repeat: Response | None = None,
) -> EventStreamResponse:
    """Return what a watch shows of a turn, until its end; `repeat` is the answer when the same request comes again."""

    def is_of_turn(event: PublishedEvent) -> bool:
        if event.name == "session:status":  # it begins to execute before its turn begins
            return False
        return is_control(event.name) or bool(event.envelope().get("correlation_id") == correlation_id)

    def is_end(event: PublishedEvent) -> bool:
        return event.name == TURN_DONE and event.session_id == session_id

    return EventStreamResponse(
        watch,
        daemon.home.settings.stream.keepalive_seconds,
        only=is_of_turn,
        last=is_end,
        is_allowed=lambda: daemon.knows(caller),
        repeat=repeat,
        headers={"Location": events_url, CORRELATION: correlation_id},
    )
