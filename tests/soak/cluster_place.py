"""A whole cluster in a folder: databases, machines, clients, and the look at what is left."""

from __future__ import annotations

import asyncio
import random
import secrets
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cluster_checker import check
from cluster_client import ClusterClient
from cluster_evidence import COMPLAINTS, Evidence
from cluster_machine import ClusterMachine
from crashing_sessions import MODULES
from database_pair import DatabasePair

NAMES = ("north", "south", "west")
_HOUR_S = 3600.0
_SETTINGS: dict[str, Any] = {
    "checkpoints": {"enabled": False},
    "security": {"module_roots": [str(MODULES)]},
    "stream": {"keepalive_seconds": 2},
}


class ClusterPlace:
    """Three machines and one database."""

    def __init__(self, *, seed: int = 1) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="amplifier-cluster-", dir="/var/tmp")).resolve()
        self.folder.chmod(0o755)  # PostgreSQL may run as someone else
        self.work = self.folder / "work"
        self.work.mkdir()
        self.chance = random.Random(seed)
        self.clients: list[ClusterClient] = []
        self.databases = DatabasePair(self.folder)
        self.machines: list[ClusterMachine] = []

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self._start)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(client.close() for client in self.clients), return_exceptions=True)
        for machine in self.machines:
            machine.close()
        self.databases.stop()
        if error is None:
            shutil.rmtree(self.folder)

    def _start(self) -> None:
        settings = _SETTINGS | {"cluster": {"shared_paths": [str(self.work)]}}
        token = secrets.token_urlsafe(32)
        for name in NAMES:
            clock_s = _HOUR_S if name == NAMES[-1] else 0.0
            machine = ClusterMachine(self.folder, name, self.databases, settings, token=token, clock_s=clock_s)
            self.machines.append(machine)
        self.at_once(*(machine.start for machine in self.machines))
        self.databases.begin_audit({machine.pid: machine.role for machine in self.machines})

    def at_once(self, *work: Callable[[], object]) -> None:
        """Do several things that wait for processes."""
        with ThreadPoolExecutor(len(work)) as pool:
            for done in [pool.submit(each) for each in work]:
                done.result()

    def plan(self, *, pause_s: float = 0.01, tool_s: float = 0.02) -> dict[str, Any]:
        """Return the plan of a session; each word of an answer takes `pause_s`, each tool `tool_s`."""
        provider = {"complaints": str(self.folder / COMPLAINTS), "pause_s": pause_s}
        tools = {"folder": str(self.work), "pause_s": tool_s}
        return {
            "session": {"orchestrator": {"module": "loop-streaming"}, "context": {"module": "context-simple"}},
            "providers": [_local("provider-rehearsed", provider)],
            "tools": [_local("tool-traced", tools), {"module": "tool-task"}],
            "agents": {"helper": {"description": "Helps", "instruction": "You help."}},
        }

    async def client(self, session_id: str, *, watchers: int = 1, **plan: float) -> ClusterClient:
        """Have a session, and a client that watches it."""
        client = ClusterClient(self.folder, self.machines, session_id, random.Random(self.chance.random()))
        self.clients.append(client)
        await client.create(self.plan(**plan), self.work, watchers=watchers)
        return client

    def holder(self, session_id: str) -> ClusterMachine:
        """Return the machine that holds a session at work."""
        holder = self.find_holder(session_id)
        assert holder is not None, f"{session_id} is held by no one"
        return holder

    def find_holder(self, session_id: str) -> ClusterMachine | None:
        """Return the machine that holds a session, None while it passes from one to another."""
        with self.databases.connect() as connection:
            found = connection.execute(
                "SELECT who FROM audit.members JOIN amplifier.holds USING (member_id)"
                " JOIN amplifier.sessions ON session = sessions.number WHERE session_id = %s ORDER BY at LIMIT 1",
                [session_id],
            ).fetchone()
        return next(machine for machine in self.machines if machine.role == found[0]) if found is not None else None

    def is_member(self, machine: ClusterMachine) -> bool:
        """Say whether a machine takes part, and others believe it."""
        with self.databases.connect() as connection:
            found = connection.execute(
                "SELECT count(*) FROM amplifier.members WHERE host = %s AND state = 'active' AND lease_until > now()",
                [machine.name],
            ).fetchone()
        return found == (1,)

    def taken_after(self, session_id: str, moment: datetime) -> float:
        """Return how many seconds after a moment a session was first taken."""
        with self.databases.connect() as connection:
            found = connection.execute(
                "SELECT min(at) FROM audit.holds JOIN amplifier.sessions ON session = sessions.number"
                " WHERE session_id = %s AND at > %s AND member_id IS NOT NULL",
                [session_id, moment],
            ).fetchone()
        assert found is not None
        return float((found[0] - moment).total_seconds())

    def began(self, token: str) -> bool:
        """Say whether a tool has begun."""
        path = self.work / "runs.txt"
        return path.exists() and f"begin {token}\n" in path.read_text()

    def add_standby(self) -> None:
        """Have a standby that every machine can reach, in the place of a server that is lost."""
        server, primary = self.databases.add_standby(), self.databases.primary.port
        for machine in self.machines:
            spare = next((proxy for proxy in machine.proxies if proxy.target != primary), machine.proxies[-1])
            spare.lead(server.port)

    async def begin_anew(self) -> None:
        """Have done with all sessions so far."""
        await asyncio.gather(*(client.close() for client in self.clients))
        self.clients.clear()

    async def check(self) -> Counter[str]:
        """Have every session made whole, wait until clients saw it all, and look at what is left."""
        with self.databases.connect() as connection:
            for client in self.clients:
                await client.resume(_agents(connection, client.session_id))
            for client in self.clients:
                last = _last_number(connection, client.session_id)
                await asyncio.gather(*(watcher.until_number(last) for watcher in client.watchers))
            sessions = frozenset(client.session_id for client in self.clients)
            found, counted = await asyncio.to_thread(check, Evidence(connection, self.folder, sessions))
        assert not found, f"in {self.folder}:\n" + "\n".join(found[:40])
        return counted


def _agents(connection: Any, root_id: str) -> list[str]:
    rows = connection.execute("SELECT session_id FROM amplifier.sessions WHERE root_session_id = %s", [root_id])
    return [session_id for (session_id,) in rows.fetchall()]


def _last_number(connection: Any, root_id: str) -> int:
    row = connection.execute(
        "SELECT max(seq) FROM amplifier.events JOIN amplifier.sessions ON session = number"
        " WHERE session_id = %s OR root_session_id = %s",
        [root_id, root_id],
    ).fetchone()
    return int(row[0])


def _local(module: str, config: dict[str, Any]) -> dict[str, Any]:
    return {"module": module, "source": str(MODULES / module), "config": config}


async def until(condition: Callable[[], bool], *, pause_s: float = 0.05) -> None:
    """Wait until something outside of this process has happened; look again after each pause."""
    async with asyncio.timeout(60.0):
        while not condition():  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(pause_s)
