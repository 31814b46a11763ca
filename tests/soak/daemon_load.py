"""Many sessions of one daemon at the same time: some stream, many are idle, and a few readers read nothing."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from daemon_process import DaemonProcess
from plain_http import Connection

from amplifierd.store.cursor import Cursor

SESSIONS = "/api/v1/sessions"
PROFILE = "foundation/offline"
WORDS = [f"word{number}" for number in range(40)]
ANSWER = " ".join(WORDS)
QUEUE_EVENTS = 400
SETTINGS: dict[str, Any] = {"checkpoints": {"enabled": False}, "stream": {"queue_events": QUEUE_EVENTS}}
"""Readers that read nothing are given up within a few turns; one that reads is never that far behind."""

_PATIENCE_S = 600.0
_HEALTH_EVERY_S = 0.05
_LOADING = 8
_LONG = 100


@dataclass
class Watched:
    """A session that streams, and everything that its watcher was sent."""

    session_id: str
    watching: Connection
    arrived: list[tuple[float, bytes]] = field(default_factory=list)
    turn_s: list[float] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def watch(self) -> None:
        async for chunk in self.watching.chunks(f"{SESSIONS}/{self.session_id}/stream"):
            self.arrived.append((time.time(), chunk))
            self.news.set()

    async def until(self, part: bytes, since: int = 0) -> None:
        """Wait until something was sent, after so many pieces."""
        async with asyncio.timeout(_PATIENCE_S):
            while part not in b"".join(chunk for _, chunk in self.arrived[since:]):
                self.news.clear()
                await self.news.wait()

    def events(self) -> list[tuple[float, dict[str, Any]]]:
        """Return the events with the moments at which they came."""
        found: list[tuple[float, dict[str, Any]]] = []
        for moment, chunk in self.arrived:
            data = (line[6:] for line in chunk.split(b"\n") if line.startswith(b"data: "))
            found += [(moment, json.loads(line)) for line in data]
        return found


@dataclass
class Seen:
    """What was measured under load, times in ms and sizes in MiB."""

    events: int = 0
    ages: list[float] = field(default_factory=list)
    health: list[float] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)
    unread_turns: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)

    @property
    def p99(self) -> float:
        return quantiles(self.ages, n=100)[98]

    def lines(self) -> list[str]:
        """Return it for people."""
        unread, sizes = median(self.unread_turns), ", ".join(f"{size:.0f}" for size in self.memory)
        return [
            f"{self.events} events, none lost, none out of order",
            f"events: median {median(self.ages):.1f} ms, 99 % within {self.p99:.1f}, all within {max(self.ages):.0f}",
            f"/health: median {median(self.health):.1f} ms, all of {len(self.health)} within {max(self.health):.0f}",
            f"turns: median {median(self.turns):.0f} ms; with a reader that reads nothing {unread:.0f}",
            f"memory of the daemon and its workers: {sizes} MiB",
        ]


class Load:
    """Drives a daemon. Every session answers `turns` times, and then goes on for longer than anybody waits."""

    def __init__(self, daemon: DaemonProcess, stack: AsyncExitStack, work: Path, *, turns: int, delay_ms: int) -> None:
        self._daemon, self._stack, self._work = daemon, stack, work
        answers = [*[ANSWER] * turns, " ".join([ANSWER] * _LONG)]
        config = {"mode": "canned", "responses": answers, "tool_trigger": None, "stream_delay_ms": delay_ms}
        self._overrides = {"providers": [{"module": "provider-mock", "config": config}]}
        self.seen = Seen()

    async def connection(self) -> Connection:
        return await self._stack.enter_async_context(await Connection.open(self._daemon.url, self._daemon.token))

    async def idle(self, count: int) -> list[str]:
        """Have sessions that are loaded and do nothing."""
        connections = [await self.connection() for _ in range(_LOADING)]

        async def some(connection: Connection, number: int) -> list[str]:
            made = []
            for _ in range(number, count, _LOADING):
                made.append(await self._create(connection))
                (await connection.post(f"{SESSIONS}/{made[-1]}/resume")).json()
            return made

        groups = await asyncio.gather(*(some(connection, at) for at, connection in enumerate(connections)))
        for connection in connections:
            connection.close()
        return [session_id for group in groups for session_id in group]

    async def streaming(self, count: int, *, unread: int) -> list[Watched]:
        """Have sessions that are watched; the first of them also by a reader that reads nothing."""
        own = await self.connection()
        found = [Watched(await self._create(own), await self.connection()) for _ in range(count)]
        for one in found[:unread]:
            await (await self.connection()).begin(f"{SESSIONS}/{one.session_id}/stream")
        await (await self.connection()).begin("/api/v1/events")
        for one in found:
            self._stack.callback(asyncio.create_task(one.watch()).cancel)
        await asyncio.gather(*(one.until(b"stream:connected") for one in found))
        return found

    async def run(self, sessions: Sequence[Watched], turns: int, *, unread: int) -> None:
        """Let every session run turns, one after the other, all sessions at once."""
        connections = [await self.connection() for _ in sessions]
        looking = asyncio.create_task(self._look_at_health(await self.connection()))
        admin = await self.connection()
        await self._weigh(admin)
        for _ in range(turns):
            await asyncio.wait_for(asyncio.gather(*map(self._turn, connections, sessions)), _PATIENCE_S)
            await self._weigh(admin)
        looking.cancel()
        for at, one in enumerate(sessions):
            (self.seen.unread_turns if at < unread else self.seen.turns).extend(taken * 1e3 for taken in one.turn_s)

    async def begin_turns(self, sessions: Sequence[Watched]) -> None:
        """Let every session begin a turn, and wait until its first words have come."""
        connection = await self.connection()
        before = [len(one.arrived) for one in sessions]
        for one in sessions:
            (await connection.post(f"{SESSIONS}/{one.session_id}/execute/stream", {"prompt": "go"})).json()
        await asyncio.gather(*(one.until(b"user_message:saved", at) for one, at in zip(sessions, before, strict=True)))

    async def check(self, sessions: Sequence[Watched], turns: int) -> None:
        """Compare what watchers were sent with the numbers of the events, the answers, and what is stored."""
        connection = await self.connection()
        for one in sessions:
            stored = (await connection.get(f"{SESSIONS}/{one.session_id}/events?limit=1000")).json()["events"]
            await one.until(f"id: {Cursor.of_line(stored[-1])}\n".encode(), -20)
            events = [(moment, event) for moment, event in one.events() if not event["event"].startswith("stream:")]
            places = [place for _, event in events if (place := Cursor.of_event(event)) is not None]
            assert places == sorted({*places}), f"{one.session_id}: {places}"
            told = {event["sequence"]: event["event"] for _, event in events if event["sequence"] is not None}
            numbers = [*told]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), f"{one.session_id}: {numbers}"
            missing = [line for line in stored if line["seq"] >= numbers[0] and told.get(line["seq"]) != line["event"]]
            assert not missing, f"{one.session_id} was not told {missing[:3]}"
            done = [event["data"] for _, event in events if event["event"] == "execution:done"]
            assert [end["response"] for end in done] == [ANSWER] * turns, f"{one.session_id}: {done}"
            pieces = [event["data"]["text"] for _, event in events if event["event"] == "llm:stream_block_delta"]
            assert "".join(pieces).split() == WORDS * turns, f"{one.session_id}: {pieces}"
            self.seen.events += len(events)
            self.seen.ages += [(moment - _moment(event)) * 1e3 for moment, event in events]

    async def _create(self, connection: Connection) -> str:
        body = {"profile_name": PROFILE, "working_dir": str(self._work), "settings_overrides": self._overrides}
        return str((await connection.post(SESSIONS, body)).json()["session_id"])

    async def _turn(self, connection: Connection, session: Watched) -> None:
        begun = time.perf_counter()
        answer = (await connection.post(f"{SESSIONS}/{session.session_id}/execute", {"prompt": "go"})).json()
        session.turn_s.append(time.perf_counter() - begun)
        assert answer["response"] == ANSWER, answer

    async def _look_at_health(self, connection: Connection) -> None:
        while True:
            begun = time.perf_counter()
            (await connection.get("/health")).json()
            self.seen.health.append((time.perf_counter() - begun) * 1e3)
            await asyncio.sleep(_HEALTH_EVERY_S)

    async def _weigh(self, connection: Connection) -> None:
        workers = (await connection.get("/api/v1/workers")).json()["workers"]
        pids = [self._daemon.pid, *(one["pid"] for one in workers)]
        self.seen.memory.append(sum(map(resident_mib, pids)))


def resident_mib(pid: int) -> float:
    """Return how much memory a process has."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def _moment(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["timestamp"]).timestamp()
