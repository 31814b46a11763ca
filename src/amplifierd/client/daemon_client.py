"""Requests to a daemon. One that is lost on the way is sent again under the same key, so that nothing is done twice."""

from __future__ import annotations

import asyncio
import ssl
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self

import httpx2

from amplifier_core.exceptions import AmplifierError
from amplifier_system.urls import trust_for
from amplifierd.exceptions import AgreementNeededError, NotReadyError, RemoteError
from amplifierd.paths import Paths
from amplifierd.server.run_file import RunningDaemon, find_running
from amplifierd.store.cursor import Cursor
from amplifierd.workers.json_rpc import error_of

_API = "/api/v1"
_ATTEMPTS = 8
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_CONNECT_S = 10.0
_SILENCE_S = 60.0
"""How long a stream may be silent; the daemon shows a sign of life more often."""
_LOOK_S = 0.1
_LOST = (httpx2.TransportError, NotReadyError)

Event = dict[str, Any]
Agree = Callable[[AgreementNeededError], Awaitable[bool]]
"""Asks a person whether modules of a plan from elsewhere get what they would."""


async def ask_no_one(error: AgreementNeededError) -> bool:
    return False


class DaemonLostError(AmplifierError):
    """The daemon cannot be reached any more."""


class DaemonClient:
    """Speaks to a daemon at `url`, or at the Unix socket `uds`. `is_alive` says whether its process is still there.

    Problems are raised as the exceptions that they were in the daemon. A client of a home goes on with the daemon that
    serves it next, if that comes within `patience_s`; `tell` is told, and `after_restart` is awaited then. Whatever
    needs an agreement about keys, the beginning of a session, its next turn or another profile, waits for `agree`.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        uds: str | None = None,
        tls: ssl.SSLContext | None = None,
        is_alive: Callable[[], bool] | None = None,
    ) -> None:
        self.patience_s = 2.0
        self.tell: Callable[[str], None] = lambda text: None
        self.agree: Agree = ask_no_one
        self.after_restart: list[Callable[[], Awaitable[None]]] = []
        self._home: Paths | None = None
        self._following = asyncio.Lock()
        self._waiting_until: float | None = None
        self._connect(url, token, uds=uds, tls=tls, is_alive=is_alive)

    def _connect(
        self,
        url: str,
        token: str | None,
        *,
        uds: str | None,
        tls: ssl.SSLContext | None,
        is_alive: Callable[[], bool] | None,
    ) -> None:
        base = url if uds is None else "http://localhost"
        self._http = httpx2.AsyncClient(
            base_url=f"{base}{_API}",
            headers={} if token is None else {"Authorization": f"Bearer {token}"},
            transport=httpx2.AsyncHTTPTransport(verify=tls or trust_for(base), uds=uds, trust_env=False),
            timeout=httpx2.Timeout(None, connect=_CONNECT_S),
        )
        self.url = url
        self.is_alive = is_alive or (lambda: True)

    @classmethod
    def of(cls, running: RunningDaemon, paths: Paths) -> Self:
        """Return a client of the daemon that serves a home, with the home's own token."""
        client = cls(running.url, _token(paths), **_way_to(running, paths))
        client._home = paths
        return client

    async def follow(self) -> bool:
        """Go on with the daemon that serves the home now, when the one before has ended; False when none comes."""
        async with self._following:
            if self.is_alive():
                return True
            if self._waiting_until is None:  # later callers wait no longer than the first
                self.tell("the daemon has ended; waiting for it")
                self._waiting_until = time.monotonic() + self.patience_s
            if self._home is None or (running := await _successor(self._home, self._waiting_until)) is None:
                return False
            before, self._waiting_until = self._http, None
            self._connect(running.url, _token(self._home), **_way_to(running, self._home))
            await before.aclose()  # by now nothing is sent with it
        self.tell("the daemon was restarted; the session continues")
        for work in tuple(self.after_restart):
            await work()
        return True

    async def get(self, path: str, **parameters: Any) -> dict[str, Any]:
        return await self._answer("GET", path, params=_said(parameters))

    async def get_now(self, path: str) -> dict[str, Any]:
        """Get something without waiting for a daemon that is ending or has ended.

        Raises:
            DaemonLostError: it does not answer.
            NotReadyError: it starts or ends.
        """
        return await self._answer("GET", path, again_after=())

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send something that is done once, however often it has to be sent.

        Raises:
            AgreementNeededError: a person has to agree to what it leads to, and did not.
        """
        try:
            return await self._post(path, body)
        except AgreementNeededError as error:
            if not await self.agree(error):
                raise
            agreements = error.agreements
        await self.patch("/settings/agreements", {"agree": agreements})
        return await self._post(path, body)

    async def _post(self, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        return await self._answer("POST", path, json=dict(body or {}), headers={"Idempotency-Key": uuid.uuid4().hex})

    async def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._answer("PATCH", path, json=dict(body))

    async def delete(self, path: str) -> dict[str, Any]:
        """Remove something. What may have arrived is not sent again: it could name something else by then.

        Raises:
            DaemonLostError: the answer was lost; the thing may be gone.
        """
        return await self._answer(
            "DELETE", path, again_after=(httpx2.ConnectError, httpx2.ConnectTimeout, NotReadyError)
        )

    async def _answer(
        self, method: str, path: str, *, again_after: tuple[type[Exception], ...] = _LOST, **options: Any
    ) -> dict[str, Any]:
        """Send a request, `again_after` some errors, and return what is answered."""
        attempts = _Attempts(self)
        while True:
            try:
                response = await self._http.request(method, path, **options)
                return _read(response)
            except again_after as error:
                await attempts.pause_after(error)
            except httpx2.TransportError as error:
                hint = "check whether it was done, then try again"
                raise DaemonLostError(f"the answer to {method} {path} was lost: {error}", hint=hint) from error

    async def events(self, path: str, *, after: Cursor | None = None, **parameters: Any) -> AsyncGenerator[Event, None]:
        """Yield the events of a session's stream, each once, across lost connections; it ends only by an error.

        Without `after` the first one is `stream:connected`, and what happens from then on follows.
        """
        last, attempts = after, _Attempts(self)
        while True:
            try:
                async with aclosing(self._connection(path, last, parameters)) as connection:
                    async for event in connection:
                        attempts.succeeded()
                        cursor = Cursor.of_event(event)
                        if event["event"] in ("stream:connected", "stream:gap"):
                            last = _begin(event, cursor) if last is None or event["event"] == "stream:gap" else last
                        elif cursor is not None:
                            if last is not None and last.covers(cursor):
                                continue
                            last = cursor
                        yield event
                await attempts.pause_after(None)
            except _LOST as error:
                await attempts.pause_after(error)

    async def _connection(
        self, path: str, last: Cursor | None, parameters: Mapping[str, Any]
    ) -> AsyncGenerator[Event, None]:
        """Yield what comes over one connection."""
        headers = {} if last is None else {"Last-Event-ID": str(last)}
        patience = httpx2.Timeout(_CONNECT_S, read=_SILENCE_S)
        async with self._http.sse(
            path, params=_said(parameters), headers=headers, timeout=patience, max_event_size=None
        ) as source:
            if source.response.is_error:
                await source.response.aread()
                _read(source.response)
            async for frame in source:
                if frame.data:
                    event: Event = frame.json()  # type: ignore[assignment] # the envelope of an event
                    yield event

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class _Attempts:
    """How often something was tried in vain, and how long it is waited before the next time."""

    def __init__(self, client: DaemonClient) -> None:
        self._client, self._count, self._since = client, 0, 0.0

    def succeeded(self) -> None:
        self._count = 0

    async def pause_after(self, error: Exception | None) -> None:
        """Wait a little, or until another daemon is there.

        Raises:
            DaemonLostError: the daemon has ended, or cannot be reached for long.
        """
        self._since = time.monotonic() if self._count == 0 else self._since
        self._count += 1
        url = self._client.url
        if not self._client.is_alive():
            if await self._client.follow():
                self._count = 0
                return
            raise DaemonLostError(f"the daemon at {url} has ended", hint="start it: amplifier daemon start")
        was_patient = time.monotonic() - self._since > self._client.patience_s  # one that stops is alive until it has
        if self._count >= _ATTEMPTS and was_patient:
            if isinstance(error, NotReadyError):
                raise error
            why = f": {error}" if error is not None and str(error) else ""
            raise DaemonLostError(f"the daemon at {url} does not answer{why}", hint="see amplifier daemon logs")
        await asyncio.sleep(min(_FIRST_PAUSE_S * 2**self._count, _LONGEST_PAUSE_S))


async def _successor(home: Paths, until: float) -> RunningDaemon | None:
    """Return the daemon that serves a home next, None when none comes in time."""
    while True:
        if (running := find_running(home)) is not None or time.monotonic() > until:
            return running
        await asyncio.sleep(_LOOK_S)


def _begin(event: Event, cursor: Cursor | None) -> Cursor:
    """Return where a stream begins or goes on; an older daemon says only the number of an event."""
    data = event["data"]
    return cursor or Cursor(0, int(data.get("sequence", data.get("resumed_at")) or 0))


def _token(paths: Paths) -> str | None:
    return paths.token_file.read_text(encoding="utf-8").strip() if paths.token_file.exists() else None


def _way_to(running: RunningDaemon, paths: Paths) -> dict[str, Any]:
    """Return how a daemon is reached, beside its address."""
    tls = None
    if running.url.startswith("https:"):
        tls = ssl.create_default_context()
        if (own := paths.certs / "daemon.crt").exists():
            tls.load_verify_locations(own)
    return {"uds": running.uds, "tls": tls, "is_alive": running.process.is_alive}


def _read(response: httpx2.Response) -> dict[str, Any]:
    """Return what was answered, or raise the problem that it is."""
    if not response.is_error:
        found: dict[str, Any] = response.json() if response.content else {}
        return found
    try:
        problem = response.json()
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        problem = {"status": response.status_code, "detail": f"it answered with the status {response.status_code}"}
    raise error_of_problem(problem)


def error_of_problem(problem: Mapping[str, Any]) -> Exception:
    """Return a problem as the exception that it was in the daemon."""
    detail, hint = str(problem.get("detail") or "it failed"), str(problem.get("hint") or "")
    facts: dict[str, Any] = {"message": detail, "hint": hint}
    if "agreements" in problem:
        facts["agreements"] = problem["agreements"]
    data = {"class": problem.get("error_class"), "facts": facts, "problem": dict(problem)}
    error = error_of({"message": detail, "data": data})
    if isinstance(error, RemoteError):
        error.reword(detail, hint=hint)
    return error


def _said(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if value is not None}
