"""Clients of a simulated cluster: they post turns to any member, follow streams, leave, and come back elsewhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

import httpx2
from invariants import ShownStream
from simulated_network import Exchange, Headers
from simulated_world import Machine, World

from amplifierd.server.http.event_stream import MEDIA_TYPE as EVENTS
from amplifierd.sessions.layers.uncounted_usage import TURN_DONE

_PLACE = "client"
_PATIENCE_S = 6.0
"""After so long without an answer a client asks again, with the same key; streams show earlier that they live."""

_UNFORESEEN = "internal-error"

Way = Literal["wait", "events", "submit"]
"""How a client submits: it waits for the result, or for the events of the turn, or watches it after it was accepted."""


class Refused(Exception):
    """A member says no; what it says is `passing` where the same request may be granted later."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(f"{problem.get('code')}: {problem.get('detail')}")
        self.problem = problem


@dataclass
class Turn:
    """A turn that a client wants: how it was accepted, and what the client heard of its end."""

    session_id: str
    prompt: str
    way: Way
    accepted: set[str] = field(default_factory=set)
    result: str | None = None
    error: str | None = None

    @property
    def is_over(self) -> bool:
        return self.result is not None or self.error is not None


class Clients:
    """All clients of one run. `shown` makes the view of one of them on a session's stream."""

    def __init__(self, world: World, chance: Random, shown: type[ShownStream], stored: Any) -> None:
        self._world, self._chance = world, chance
        self._shown, self._stored = shown, stored
        self.turns: list[Turn] = []
        self.views: list[ShownStream] = []

    async def submit_all(self, session_id: str) -> None:
        """Submit turns one after the other, some before the one before has ended, until each has."""
        chance, running = self._chance, []
        for number in range(1 + chance.randrange(3)):
            await asyncio.sleep(chance.expovariate(1.0))
            way: Way = chance.choice(("wait", "events", "submit"))
            turn = Turn(session_id, f"prompt {number} of {session_id}", way)
            self.turns.append(turn)
            running.append(asyncio.ensure_future(self._submit(turn)))
            if chance.random() < 0.6:
                await asyncio.wait(running)
        for task in running:
            await task

    async def watch(self, session_id: str) -> None:
        """Follow a session for good; stay a while at one member, and go on at another."""
        chance, view = self._chance, self._view(session_id)
        is_restless = chance.random() < 0.5
        begin = chance.choice(("", "?after=0", "?replay=3"))
        while True:
            machine = chance.choice(self._world.machines)
            stay_s = chance.expovariate(0.3) if is_restless else 1e9
            try:
                async with asyncio.timeout(stay_s):
                    target = f"/api/v1/sessions/{session_id}/stream{begin if view.last is None else ''}"
                    async for _ in self._events(view, machine, target):
                        pass
            except TimeoutError:
                continue
            except (httpx2.TransportError, Refused) as error:
                self._world.trace(f"{view} at {machine.name}: {type(error).__name__} {error!s:.90}")
            await asyncio.sleep(chance.expovariate(1))

    def _view(self, session_id: str) -> ShownStream:
        view = self._shown(f"stream {len(self.views)} of {session_id}", session_id, self._stored)
        self.views.append(view)
        return view

    # --- turns

    async def _submit(self, turn: Turn) -> None:
        while not turn.is_over:
            machine = self._chance.choice(self._world.machines)
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    await self._post(turn, machine)
            except (TimeoutError, httpx2.TransportError) as error:
                self._world.trace(f"{turn.prompt!r} at {machine.name}: {type(error).__name__} {error!s:.90}")
            except Refused as error:
                self._world.trace(f"{turn.prompt!r} at {machine.name}: {error!s:.120}")
                if not self._is_passing(error.problem):
                    turn.error = str(error)
            if not turn.is_over:
                await asyncio.sleep(self._chance.expovariate(2))
        self._world.trace(f"{turn.prompt!r} is over: {turn.result or turn.error:.100}")

    def _is_passing(self, problem: dict[str, Any]) -> bool:
        is_unforeseen = problem.get("code") == _UNFORESEEN
        return bool(problem.get("retryable")) or (is_unforeseen and self._world.server.was_hidden)

    async def _post(self, turn: Turn, machine: Machine) -> None:
        """Submit a turn, and follow it to its end."""
        headers = [
            (b"content-type", b"application/json"),
            (b"idempotency-key", turn.prompt.replace(" ", "-").encode()),
            *([(b"accept", EVENTS.encode())] if turn.way == "events" else ()),
        ]
        rest = "execute/stream" if turn.way == "submit" else "execute"
        body = json.dumps({"prompt": turn.prompt, "queue": True}).encode()
        target = f"/api/v1/sessions/{turn.session_id}/{rest}"
        exchange = await self._world.network.ask(_PLACE, machine, "POST", target, headers, body)
        try:
            status, told = await exchange.head()
            given = dict(told)
            if given[b"content-type"].startswith(EVENTS.encode()):
                turn.accepted.add(given[b"x-correlation-id"].decode())
                async for event in self._frames(exchange, None):
                    if self._ends(turn, event):
                        return
                return
            answer = await _json(exchange)
        finally:
            exchange.close()
        if status == 202:
            turn.accepted.add(answer["correlation_id"])
            await self._follow(turn, answer["events_url"])
        elif status == 200 or answer.get("correlation_id"):  # or it ended with an error
            turn.accepted.add(answer["correlation_id"])
            turn.result = answer["status"] if status == 200 else "failed"
        else:
            raise Refused(answer)

    async def _follow(self, turn: Turn, target: str) -> None:
        """Watch a turn that was accepted, from where its events begin, at one member after the other."""
        view = self._view(turn.session_id)
        view.is_left = True
        while True:
            machine = self._chance.choice(self._world.machines)
            try:
                async for event in self._events(view, machine, target):
                    if self._ends(turn, event):
                        return
            except (httpx2.TransportError, Refused) as error:
                self._world.trace(f"{turn.prompt!r} watched at {machine.name}: {type(error).__name__} {error!s:.90}")
            await asyncio.sleep(self._chance.expovariate(2))

    def _ends(self, turn: Turn, event: dict[str, Any]) -> bool:
        if event["event"] == TURN_DONE and event["correlation_id"] in turn.accepted:
            turn.result = event["data"]["status"]
        return turn.result is not None

    # --- streams

    async def _events(self, view: ShownStream, machine: Machine, target: str) -> AsyncIterator[dict[str, Any]]:
        """Yield what a member shows, after what the client has seen before."""
        headers: Headers = () if view.last is None else ((b"last-event-id", str(view.last).encode()),)
        exchange = await self._world.network.ask(_PLACE, machine, "GET", target, headers)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                status, _ = await exchange.head()
                if status != 200:
                    raise Refused(await _json(exchange))
            async for event in self._frames(exchange, view):
                yield event
        except TimeoutError:
            raise httpx2.ReadTimeout("nothing comes") from None
        finally:
            exchange.close()

    async def _frames(self, exchange: Exchange, view: ShownStream | None) -> AsyncIterator[dict[str, Any]]:
        body = exchange.body()
        while True:
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    chunk = await anext(body)
            except StopAsyncIteration:
                return
            for frame in chunk.split(b"\n\n"):
                fields = dict(line.split(b": ", 1) for line in frame.split(b"\n") if b": " in line)
                if b"data" not in fields:
                    continue
                event = json.loads(fields[b"data"])
                if view is not None:
                    view.show(event, fields.get(b"id", b"").decode())
                yield event


async def _json(exchange: Exchange) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(b"".join([chunk async for chunk in exchange.body()]))
    return answer
