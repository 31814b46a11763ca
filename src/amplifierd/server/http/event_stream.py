"""Server-sent events: what a client watches, as a response that lasts as long as the client stays.

Frames come ready from the hub, so that this only passes bytes on, many events in one write. A client that is gone is
noticed at once, or with the next keepalive at the latest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from amplifier_core.exceptions import AmplifierError
from amplifier_system.tasks import start_task
from amplifierd.server.auth.callers import Caller
from amplifierd.server.daemon import Daemon
from amplifierd.server.events.event_watch import Batch, Watch
from amplifierd.server.events.published_event import PublishedEvent, is_control
from amplifierd.sessions.layers.uncounted_usage import TURN_DONE

from .request_body import client_gone

logger = logging.getLogger(__name__)

MEDIA_TYPE = "text/event-stream"
HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
RETRY = b"retry: 2000\n\n"
KEEPALIVE = b": keepalive\n\n"

STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"description": "The events, until the client leaves", "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}
}

_WRITE_BYTES = 1 << 16


class EventStreamResponse(Response):
    """A watch as a response; `only` says which events are shown, and it ends after one that is the `last`.

    It also ends when `is_allowed` says that the client may not see any more.

    `repeat` is what stands for it when the same request comes again.
    """

    media_type = MEDIA_TYPE

    def __init__(
        self,
        watch: Watch,
        keepalive_s: float,
        *,
        only: Callable[[PublishedEvent], bool] | None = None,
        last: Callable[[PublishedEvent], bool] | None = None,
        is_allowed: Callable[[], bool] = lambda: True,
        repeat: Response | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status_code, self.background = 200, None
        self.init_headers({**HEADERS, **(headers or {})})
        self.repeat = repeat or self
        self.body = b""
        self._watch, self._keepalive_s, self._only, self._last = watch, keepalive_s, only, last
        self._is_allowed = is_allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            writing = start_task(self._write(send))
            leaving = start_task(client_gone(receive))
            try:
                await self._until_over(writing, leaving)
            finally:
                for task in (writing, leaving):
                    task.cancel()
                await asyncio.gather(writing, leaving, return_exceptions=True)
            if not writing.cancelled() and (error := writing.exception()) is not None:
                raise error
        finally:
            self._watch.close()

    async def _until_over(self, *tasks: asyncio.Task[None]) -> None:
        """Wait for one of the tasks, but not for a client that takes nothing and has been given up."""
        was_given_up = False
        while not was_given_up:
            was_given_up = self._watch.is_overflowed
            done, _ = await asyncio.wait(tasks, timeout=self._keepalive_s, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return

    async def _write(self, send: Send) -> None:
        async def write(data: bytes, *, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": more})

        await write(RETRY)
        try:
            async with aclosing(self._frames()) as frames:
                async for data in frames:
                    await write(data)
        except AmplifierError as error:  # the store is away, or this daemon ends: the client comes back
            logger.info("a stream of events is broken off: %s", error)
        await write(b"", more=False)

    async def _frames(self) -> AsyncGenerator[bytes, None]:
        async for batch in self._watch.batches(self._keepalive_s):
            if not self._is_allowed():
                return
            if not batch:
                yield KEEPALIVE
                continue
            shown, is_over = self._shown(batch)
            waiting, size = [], 0
            for event in shown:
                frame = self._watch.frame(event)
                waiting.append(frame)
                size += len(frame)
                if size >= _WRITE_BYTES:
                    yield b"".join(waiting)
                    waiting, size = [], 0
            if waiting:
                yield b"".join(waiting)
            if is_over:
                return

    def _shown(self, batch: Batch) -> tuple[Batch, bool]:
        """Return what is shown of a batch, and whether the stream ends with it."""
        shown: list[PublishedEvent] = []
        for event in batch:
            if self._only is None or self._only(event):
                shown.append(event)
                if self._last is not None and self._last(event):
                    return shown, True
        return shown, False


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
