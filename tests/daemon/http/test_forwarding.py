"""Requests for sessions of other members, when whoever answers there is not the member that was meant."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from amplifierd.cluster.destination import Destination
from amplifierd.exceptions import MemberUntrustedError
from amplifierd.server.auth.callers import Caller
from amplifierd.server.http.forwarding import Forwarding

SESSION = "session_" + "1" * 32
BEFORE = Destination("member_before", "http://127.0.0.1:9")


class Cluster:
    """Members of which one has joined anew, so that nobody is any more who it was before."""

    is_out = False

    def __init__(self, *places: Destination | None, was_sent: bool = False) -> None:
        self._places, self._was_sent = [*places], was_sent
        self.view, self.peers = self, self
        self.sent: list[Destination] = []

    async def look(self) -> None:
        """Find out who is there; nothing else changes by it."""

    async def destination(self, session_id: str, *, loads: bool) -> Destination | None:
        return self._places.pop(0) if len(self._places) > 1 else self._places[0]

    async def lost(self, to: Destination) -> None:
        await asyncio.Event().wait()

    @asynccontextmanager
    async def send(self, to: Destination, *request: str, **parts: Any) -> AsyncIterator[httpx2.Response]:
        self.sent.append(to)
        raise MemberUntrustedError("meant another member", was_sent=self._was_sent)
        yield httpx2.Response(500)


async def ask(cluster: Cluster, method: str, rest: str) -> tuple[int, bytes]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"here"})

    daemon = SimpleNamespace(cluster=cluster, live=SimpleNamespace(state=lambda session_id: None))
    state = {"caller": Caller("admin", "admin", "admin"), "address": "", "request_id": "1"}

    async def with_state(scope: Any, receive: Any, send: Any) -> None:
        await Forwarding(app, daemon=daemon)({**scope, "state": state}, receive, send)  # type: ignore[arg-type]

    transport = httpx2.ASGITransport(app=with_state)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        answer = await client.request(method, f"/api/v1/sessions/{SESSION}{rest}")
        return answer.status_code, answer.content


async def test_a_member_that_has_joined_anew_is_looked_for_again() -> None:
    cluster = Cluster(BEFORE, None)

    assert await ask(cluster, "POST", "/cancel") == (200, b"here")

    assert cluster.sent == [BEFORE]


@pytest.mark.parametrize(
    "cluster", [Cluster(BEFORE), Cluster(BEFORE, None, was_sent=True)], ids=["it is still meant", "it may be done"]
)
async def test_someone_who_is_not_a_member_is_told_to_the_client(cluster: Cluster) -> None:
    status, body = await ask(cluster, "DELETE", "/messages/last")

    assert (status, b"meant another member" in body) == (502, True)
    assert cluster.sent == [BEFORE]
