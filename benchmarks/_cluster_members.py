"""Real daemons on one PostgreSQL, as processes: how many turns they run, and how soon one takes over from another."""

import asyncio
import itertools
import json
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from _cluster_server import Server
from _harness import REPOSITORY

sys.path.append(str(REPOSITORY / "tests/stand_ins"))

from daemon_process import DaemonProcess
from plain_http import Connection

API = "/api/v1/sessions"
LONG_MS = 600_000
KIB = 1024
_LOOK_S = 0.02
_PATIENCE_S = 60.0


def plan(**provider: Any) -> dict[str, Any]:
    """Return a plan whose model answers in a word."""
    config = {"mode": "canned", "responses": ["Done."], "tool_trigger": None, **provider}
    return {
        "session": {"orchestrator": {"module": "loop-streaming"}, "context": {"module": "context-simple"}},
        "providers": [{"module": "provider-mock", "config": config}],
        "tools": [],
        "hooks": [],
        "agents": {},
    }


class Members:
    """Daemons that share a store, each with a home of its own."""

    def __init__(self, folder: Path, server: Server, count: int) -> None:
        settings = {"store": server.new_store(), "checkpoints": {"enabled": False}}
        token = {"AMPLIFIERD_CLUSTER__TOKEN": secrets.token_hex(24)}
        self.server, self._work = server, folder
        self.daemons = [DaemonProcess(folder / f"member{n}", settings, environment=token) for n in range(count)]

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Members"]:
        try:
            for daemon in self.daemons:
                await asyncio.to_thread(daemon.start)
            yield self
        finally:
            for daemon in self.daemons:
                await asyncio.to_thread(daemon.stop)

    async def connect(self, number: int) -> Connection:
        daemon = self.daemons[number]
        return await Connection.open(daemon.url, daemon.token)

    async def create(self, connection: Connection, **provider: Any) -> str:
        answer = await connection.post(API, {"mount_plan": plan(**provider), "working_dir": str(self._work)})
        return str(_read(answer)["session_id"])

    async def turns_per_second(self, sessions: int, seconds: float) -> float:
        """Let sessions, spread over the members, run one turn after the other."""
        async with AsyncExitStack() as stack:
            busy = []
            for number in itertools.islice(itertools.cycle(range(len(self.daemons))), sessions):
                connection = await stack.enter_async_context(await self.connect(number))
                session_id = await self.create(connection)
                await run_turn(connection, session_id)
                busy.append((connection, session_id))
            started = time.perf_counter()

            async def work(connection: Connection, session_id: str) -> int:
                turns = 0
                while time.perf_counter() - started < seconds:
                    await run_turn(connection, session_id)
                    turns += 1
                return turns

            done = await asyncio.gather(*(work(*each) for each in busy))
            return sum(done) / (time.perf_counter() - started)

    async def turn_ms(self, at: int, through: int, turns: int) -> float:
        """Return the ms of a turn of a session that one member holds, asked for at a member."""
        async with await self.connect(at) as holder, await self.connect(through) as asked:
            session_id = await self.create(holder)
            await run_turn(holder, session_id)
            await run_turn(asked, session_id)
            started = time.perf_counter()
            for _ in range(turns):
                await run_turn(asked, session_id)
            return (time.perf_counter() - started) / turns * 1e3

    async def takeovers(self, sessions: int, victim: int) -> list[float]:
        """Kill a member that runs turns; return the seconds until each of its sessions is whole at another member."""
        survivor = (victim + 1) % len(self.daemons)
        async with await self.connect(victim) as first, await self.connect(survivor) as other:
            wanted = [await self.create(first, latency_ms=LONG_MS) for _ in range(sessions)]
            for session_id in wanted:
                _read(await first.post(f"{API}/{session_id}/execute/stream", {"prompt": "Hello"}))
            await _until(other, wanted, len(wanted), lambda found: found["activity"] == "executing")
            members = _read(await first.get("/api/v1/cluster"))["members"]
            held = next(member["holds"] for member in members if member["is_self"])  # others have the rest
            await asyncio.to_thread(self.daemons[victim].kill)
            killed = time.perf_counter()
            ended = await _until(other, wanted, held, lambda found: bool(found["takeover"]))
            for session_id in wanted:
                await other.ask("DELETE", f"{API}/{session_id}?force=true")
        await asyncio.to_thread(self.daemons[victim].start)
        return [moment - killed for moment in ended.values()]


class AtWork:
    """What some members did: rates and times, and what a turn of theirs did to the database."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.commits: list[float] = []
        self.log_kib: list[float] = []
        self.resting: list[float] = []
        self.connections: list[float] = []

    async def measure(self, members: Members, sessions: int, seconds: float) -> None:
        """Let members rest for a while, then work as long; what they do at rest is not counted to their turns."""
        before = await asyncio.to_thread(members.server.count)
        await asyncio.sleep(seconds)
        between = await asyncio.to_thread(members.server.count)
        rate = await members.turns_per_second(sessions, seconds)
        after = await asyncio.to_thread(members.server.count)
        turns, count = sessions + rate * seconds, len(members.daemons)  # every session warms up with a turn
        self.rates.append(rate)
        self.commits.append((after.commits - 2 * between.commits + before.commits) / turns)
        self.log_kib.append((after.log_bytes - 2 * between.log_bytes + before.log_bytes) / turns / KIB)
        self.resting.append((between.commits - before.commits) / seconds / count)
        self.connections.append(after.connections / count)


async def run_turn(connection: Connection, session_id: str) -> None:
    answer = _read(await connection.post(f"{API}/{session_id}/execute", {"prompt": "Hello"}))
    assert answer["status"] == "completed", answer


async def _until(
    connection: Connection, wanted: Sequence[str], count: int, is_so: Callable[[dict[str, Any]], bool]
) -> Mapping[str, float]:
    """Return when so many of some sessions were first seen to be so."""
    seen: dict[str, float] = {}
    limit = time.perf_counter() + _PATIENCE_S
    while len(seen) < count and time.perf_counter() < limit:
        for session_id in wanted:
            if session_id not in seen and is_so(_read(await connection.get(f"{API}/{session_id}"))):
                seen[session_id] = time.perf_counter()
        await asyncio.sleep(_LOOK_S)
    assert len(seen) == count, f"{count - len(seen)} sessions are not so after {_PATIENCE_S:g} s"
    return seen


def _read(answer: Any) -> dict[str, Any]:
    assert answer.status in (200, 201, 202), (answer.status, answer.body)
    found: dict[str, Any] = json.loads(answer.body)
    return found
