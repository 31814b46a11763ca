"""The other members, as requests can be sent to them."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

import httpx2

from amplifier_system.tasks import start_task
from amplifierd.exceptions import MemberError, MemberUntrustedError

from .channel import Channel, Greeting, Request, Welcome
from .destination import Destination
from .member_request import CALLER, CHANNEL, HELLO, SEAL, sealed_headers

logger = logging.getLogger(__name__)

_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout)
_PATIENCE_S = 5.0
"""How long a member may take to be reached, and to say hello."""


class Peers:
    """Sends requests to other members, each over a channel on which both ends are known.

    They go over HTTP, or over a `transport` that is given.
    """

    def __init__(
        self,
        token: bytes,
        member_id: str,
        *,
        tls: ssl.SSLContext | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.member_id = member_id
        self._token = token
        self._channels: dict[Destination, asyncio.Task[Channel]] = {}
        transport = transport or httpx2.AsyncHTTPTransport(
            verify=tls or True,
            trust_env=False,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
        )
        self._http = httpx2.AsyncClient(transport=transport, timeout=httpx2.Timeout(None, connect=_PATIENCE_S))

    @asynccontextmanager
    async def send(
        self,
        to: Destination,
        method: str,
        target: str,
        *,
        caller: str,
        headers: Iterable[tuple[str, str]] = (),
        body: bytes = b"",
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request, and have the head of its answer; the rest comes while the block runs.

        Raises:
            MemberError: it cannot be reached, or the connection is lost.
            MemberUntrustedError: someone else answers there, or this one is not taken for a member.
        """
        said = [*headers, (CALLER, caller)]
        response = await self._answered(to, method, target, said, body)
        try:
            yield response
        except httpx2.TransportError as error:
            raise _lost(to, error, was_sent=True) from error
        finally:
            await response.aclose()

    async def ask(self, to: Destination, target: str, *, caller: str) -> dict[str, Any]:
        """Return what a member answers to a question, within a few seconds.

        Raises:
            MemberError: it does not answer, or with something else.
        """
        try:
            async with asyncio.timeout(_PATIENCE_S), self.send(to, "GET", target, caller=caller) as response:
                await response.aread()
                answer = response.json() if response.status_code == 200 else None
        except (TimeoutError, ValueError) as error:
            raise _lost(to, error) from error
        if not isinstance(answer, dict):
            raise MemberError(f"the member {to.member_id} answered {target} with the status {response.status_code}")
        return answer

    async def _answered(
        self, to: Destination, method: str, target: str, headers: list[tuple[str, str]], body: bytes
    ) -> httpx2.Response:
        for is_last in (False, True):
            opening = self._channel(to)
            channel = await asyncio.shield(opening)
            response = await self._send(to, channel, method, target, headers, body)
            if response.status_code != 401 or SEAL in response.headers:
                return response
            await response.aclose()  # it has forgotten the channel
            if self._channels.get(to) is opening:
                del self._channels[to]
            if is_last:
                break
        raise MemberUntrustedError(
            f"{to.address} does not accept this daemon as a member",
            hint="make sure that all have the same cluster token",
        )

    async def _send(
        self,
        to: Destination,
        channel: Channel,
        method: str,
        target: str,
        headers: list[tuple[str, str]],
        body: bytes,
    ) -> httpx2.Response:
        request = Request.of(method, target, sealed_headers(headers), body)
        number, seal = channel.seal(request)
        sent = [*headers, (CHANNEL, f"{channel.channel_id} {number} {request.body_hash} {seal}")]
        url = httpx2.URL(to.address).copy_with(raw_path=target.encode("latin-1"))
        self._check_open(to)
        try:
            response = await self._http.send(
                httpx2.Request(method, url, headers=sent, content=body or None), stream=True
            )
        except httpx2.TransportError as error:
            raise _lost(to, error, was_sent=not isinstance(error, _NOT_SENT)) from error
        given = response.headers.get(SEAL)
        if given is not None and not channel.is_answer(number, response.status_code, given):
            await response.aclose()
            raise MemberUntrustedError(
                f"the answer of {to.address} is not sealed by the member {to.member_id}", was_sent=True
            )
        if given is None and response.status_code != 401:
            await response.aclose()
            raise MemberUntrustedError(f"the answer of {to.address} is not sealed", was_sent=True)
        return response

    def _channel(self, to: Destination) -> asyncio.Task[Channel]:
        """Return the channel to a member, or the attempt to open it."""
        opening = self._channels.get(to)
        if opening is None or (opening.done() and (opening.cancelled() or opening.exception() is not None)):
            opening = self._channels[to] = start_task(self._open(to))
            opening.add_done_callback(_read_error)
        return opening

    async def _open(self, to: Destination) -> Channel:
        greeting = Greeting(self._token, self.member_id, to.member_id)
        self._check_open(to)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                response = await self._http.post(f"{to.address}{HELLO}", json=asdict(greeting.hello))
                answer = response.json()
        except (httpx2.TransportError, httpx2.InvalidURL, TimeoutError, ValueError) as error:
            raise _lost(to, error) from error
        if response.status_code == 404:  # a daemon that was started again is reached where the one before it was
            raise MemberError(f"the member {to.member_id} is not at {to.address} any more")
        if response.status_code != 200 or not isinstance(answer, Mapping):
            raise MemberUntrustedError(
                f"{to.address} does not accept this daemon as a member (status {response.status_code})",
                hint="make sure that all have the same cluster token",
            )
        return greeting.channel(Welcome(*(str(answer.get(name, "")) for name in ("channel_id", "nonce", "proof"))))

    def _check_open(self, to: Destination) -> None:
        """Refuse to send for a member that this daemon is not any more: it stops, or has joined anew."""
        if self._http.is_closed:
            raise MemberError(f"{to.address} was not asked: the member {self.member_id} is gone")

    def keep(self, members: Iterable[str]) -> None:
        """Let go of the channels to all but these members."""
        there = {*members}
        for to in [to for to in self._channels if to.member_id not in there]:
            self._channels.pop(to).cancel()

    async def close(self) -> None:
        for opening in self._channels.values():
            opening.cancel()
        await asyncio.gather(*self._channels.values(), return_exceptions=True)
        await self._http.aclose()


def _read_error(opening: asyncio.Task[Channel]) -> None:
    """Take note of a failure that no one may be waiting for any more."""
    if not opening.cancelled():
        opening.exception()


def _lost(to: Destination, error: Exception, *, was_sent: bool = False) -> MemberError:
    why = str(error) or type(error).__name__
    how = "was lost before it answered" if was_sent else "cannot be reached"
    return MemberError(f"the member {to.member_id} at {to.address} {how}: {why}", was_sent=was_sent)
