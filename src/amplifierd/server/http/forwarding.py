"""Requests for sessions that another member holds: sent on to it as they are, and its answers passed back.

Whatever a client asks of a session, any member can be asked. A holder that is gone is waited for until another member
has taken its place; a request that may have been done is sent again only where it is done once however often it comes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import httpx2
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from amplifier_core.exceptions import AmplifierError
from amplifier_system.surroundings import new_token, steady_time
from amplifier_system.tasks import start_task
from amplifierd.cluster.destination import Destination
from amplifierd.cluster.member_request import passed_on
from amplifierd.exceptions import MemberError, MemberUntrustedError
from amplifierd.server.auth.callers import carried
from amplifierd.server.daemon import Daemon

from .event_stream import MEDIA_TYPE as EVENTS
from .member_gate import MEMBER, target_of
from .problem_answers import MEDIA_TYPE, error_answer, openai_error, refusal_answer
from .relayed_turn import relayed_turn
from .request_body import client_gone, replayed, whole_body
from .request_headers import read_headers
from .session_paths import NEW_WORK, PathSession, is_new_work, session_of_path

PATIENCE_S = 25.0
"""How long a session is looked for that one daemon has given up, or lost, and no other has yet."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 0.5
_KEY = "idempotency-key"
_PASSED_BACK = frozenset(
    {
        *("content-type", "content-length", "content-disposition", "location", "retry-after", "cache-control"),
        *("www-authenticate", "etag", "x-accel-buffering", "x-correlation-id", "idempotency-repeated"),
    }
)

T = TypeVar("T")
Answer = Callable[[], Awaitable[None]]


class Forwarding:
    """A layer of the application, below the one that knows the caller. Outside of a cluster it does nothing."""

    def __init__(self, app: ASGIApp, *, daemon: Daemon) -> None:
        self._app, self._daemon = app, daemon

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._daemon.cluster is None or MEMBER in scope["state"]:
            await self._app(scope, receive, send)
            return
        headers, is_out = read_headers(scope["headers"]), self._daemon.cluster.is_out
        asked = session_of_path(scope, headers) or (NEW_WORK if is_out and is_new_work(scope) else None)
        if asked is None or (self._is_here(asked) and not is_out):
            await self._app(scope, receive, send)
            return
        sending = None
        try:
            body = await whole_body(receive)
            sending = _Sending(self._app, self._daemon, asked, scope, headers, body, receive, send)
            await sending.run()
        except HTTPException as error:
            await refusal_answer(Request(scope), error)(scope, receive, send)
        except AmplifierError as error:
            if sending is not None and sending.has_begun_to_answer:
                raise  # only the end of the connection can tell the client
            await error_answer(Request(scope), error)(scope, receive, send)

    def _is_here(self, asked: PathSession) -> bool:
        if asked.kind == "operation":
            return self._daemon.operations.knows(asked.session_id)
        return self._daemon.live.state(asked.session_id) is not None


class _Sending:
    """One request on its way to a daemon that can answer it."""

    def __init__(
        self,
        app: ASGIApp,
        daemon: Daemon,
        asked: PathSession,
        scope: Scope,
        headers: Mapping[bytes, bytes],
        body: bytes,
        receive: Receive,
        send: Send,
    ) -> None:
        assert daemon.cluster is not None
        self._app, self._daemon, self._cluster, self._asked = app, daemon, daemon.cluster, asked
        self._scope, self._body, self._receive, self._send = scope, body, receive, send
        state = scope["state"]
        self._caller = carried(state["caller"], state["address"])
        self._headers = {**dict(passed_on(headers)), "x-request-id": state["request_id"]}
        if scope["method"] == "POST" and asked.is_repeatable:
            self._headers.setdefault(_KEY, new_token())
        self._wants_events = EVENTS in self._headers.get("accept", "")
        self._was_sent = self.has_begun_to_answer = False

    async def run(self) -> None:
        """Have the request answered, here or elsewhere; what only says that the session is elsewhere is followed."""
        until, pause_s = steady_time() + PATIENCE_S, _FIRST_PAUSE_S
        to = await self._find()
        while True:
            answer = await self._here() if to is None else await self._there(to)
            if answer is None:
                return
            await asyncio.sleep(pause_s)
            before, pause_s = to, min(2 * pause_s, _LONGEST_PAUSE_S)
            to = await self._find()
            is_here = before is None and to is None and not self._cluster.is_out
            if is_here or steady_time() > until:
                await answer()
                return

    async def _find(self) -> Destination | None:
        if self._asked is NEW_WORK:
            return self._cluster.another()
        if self._asked.kind == "operation":
            elsewhere, state = self._daemon.elsewhere, self._scope["state"]
            asked = (self._scope["path"], state["caller"], state["address"])
            return await elsewhere.who_knows(*asked) if elsewhere is not None else None
        return await self._cluster.destination(self._asked.session_id, loads=self._asked.loads)

    async def _here(self) -> Answer | None:
        """Answer here; returns the answer if it only says that another daemon has the session."""
        buffered, scope = BufferedSend(self._send), self._scope
        if self._was_sent and _KEY in self._headers:  # it may have been done, under the key that it was given here
            others = [(name, value) for name, value in scope["headers"] if name != _KEY.encode()]
            scope = {**scope, "headers": [*others, (_KEY.encode(), self._headers[_KEY].encode("latin-1"))]}
        await self._app(scope, replayed(self._body, self._receive), buffered.send)
        return buffered.release if buffered.is_elsewhere else None

    async def _there(self, to: Destination) -> Answer | None:
        """Have another member answer; returns what is to be said if it cannot, and may be tried again."""
        buffered = BufferedSend(self._send)
        try:
            async with AsyncExitStack() as stack:
                response = await self._unless_lost(to, stack.enter_async_context(self._sent(to)))
                if response is not None:
                    self._daemon.metrics.count_forwarded("answered")
                    await self._pass_back(to, response, buffered)
        except MemberUntrustedError as error:
            if await self._is_there(to):
                raise
            return self._lost(error)  # it has joined anew, under another name
        except MemberError as error:
            self._daemon.metrics.count_forwarded("lost")
            self.has_begun_to_answer = buffered.has_begun
            if buffered.has_begun:
                raise
            return self._lost(error)
        return buffered.release if buffered.is_elsewhere else None

    async def _is_there(self, to: Destination) -> bool:
        """True if a member is still the one that has to answer, as is known by now."""
        await self._cluster.view.look()
        return await self._find() == to

    def _sent(self, to: Destination) -> Any:
        method, target = self._scope["method"], target_of(self._scope)
        headers = self._headers.items()
        return self._cluster.peers.send(to, method, target, caller=self._caller, headers=headers, body=self._body)

    async def _pass_back(self, to: Destination, response: httpx2.Response, buffered: BufferedSend) -> None:
        is_repeated, self._was_sent = self._was_sent, True
        if self._asked.kind == "turn" and self._wants_events:
            session_id, caller = self._asked.session_id, self._scope["state"]["caller"]
            turn = await relayed_turn(self._daemon, caller, session_id, response, to, is_repeated=is_repeated)
            if turn is not None:
                await turn(self._scope, self._receive, buffered.send)
                return
        await self._unless_lost(to, self._relay(response, buffered))

    def _lost(self, error: MemberError) -> Answer:
        """Return what is said if no other daemon answers; a request that may have been done ends here."""
        self._was_sent = self._was_sent or error.was_sent
        if error.was_sent and not self._asked.is_repeatable:
            raise error

        async def say() -> None:
            await error_answer(Request(self._scope), error)(self._scope, self._receive, self._send)

        return say

    async def _unless_lost(self, to: Destination, work: Coroutine[Any, Any, T]) -> T | None:
        """Return what some work with a member returns; None when the client has left.

        Raises:
            MemberError: the member has lost the session meanwhile.
        """
        working = start_task(work)
        lost = start_task(self._cluster.lost(to))
        gone = start_task(client_gone(self._receive))
        try:
            await asyncio.wait((working, lost, gone), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            if gone.done():
                return None
            raise MemberError(f"the member {to.member_id} was lost before its answer came", was_sent=True)
        finally:
            for task in (working, lost, gone):
                task.cancel()
            await asyncio.gather(working, lost, gone, return_exceptions=True)

    async def _relay(self, response: httpx2.Response, buffered: BufferedSend) -> None:
        """Pass an answer on as it comes."""
        headers = [(name, value) for name, value in response.headers.raw if name.decode().lower() in _PASSED_BACK]
        await buffered.send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        try:
            async for chunk in response.aiter_raw():
                await buffered.send({"type": "http.response.body", "body": chunk, "more_body": True})
        except httpx2.TransportError as error:
            if self._asked.kind != "completion" or not response.headers.get("content-type", "").startswith(EVENTS):
                raise
            lost = {"status": 502, "code": "member-unreachable", "detail": f"the member that answered is lost: {error}"}
            last = b"data: %b\n\n" % json.dumps(openai_error(lost)).encode()
            await buffered.send({"type": "http.response.body", "body": last, "more_body": True})
        await buffered.send({"type": "http.response.body", "body": b"", "more_body": False})


_ELSEWHERE = frozenset({"session-held", "not-ready"})
"""Problems of a daemon that has not begun anything, because another one has the session or it takes no more work."""

_STATUSES = frozenset({409, 503})


class BufferedSend:
    """Sends an answer on, unless it may say that the session is elsewhere; that is kept, and `is_elsewhere` then."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._kept: list[Message] = []
        self.has_begun = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if message["status"] in _STATUSES and _is_problem(message):
                self._kept.append(message)
                return
        elif self._kept:
            self._kept.append(message)
            if message.get("more_body", False) or self.is_elsewhere:
                return
            await self.release()
            return
        self.has_begun = True
        await self._send(message)

    @property
    def is_elsewhere(self) -> bool:
        """True if what is kept says that nothing was done, and that it can be tried elsewhere."""
        if len(self._kept) < 2:
            return False
        try:
            problem = json.loads(b"".join(message.get("body", b"") for message in self._kept[1:]))
        except ValueError:
            return False
        found = problem.get("error", problem) if isinstance(problem, dict) else {}
        return isinstance(found, dict) and found.get("code") in _ELSEWHERE

    async def release(self) -> None:
        """Send what was kept after all."""
        kept, self._kept = self._kept, []
        for message in kept:
            self.has_begun = True
            await self._send(message)


def _is_problem(message: Message) -> bool:
    kind: bytes = dict(message.get("headers", ())).get(b"content-type", b"")
    return kind.startswith((MEDIA_TYPE.encode(), b"application/json"))
