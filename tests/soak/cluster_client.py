"""A client that has a session in a cluster: it asks any member, and tries again with another one as clients do.

What it submits and what is accepted goes into the folder of the run, in the moment in which it happens.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster_evidence import SUBMITTED
from cluster_machine import ClusterMachine
from cluster_watcher import BROKEN, PATIENCE_S, SESSIONS, ClusterWatcher
from plain_http import Answer, Connection

_ANSWER_S = 8.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 1.0
_LATER = frozenset({"execution-in-progress", "session-held", "queue-full", "not-ready"})
"""Problems that are about the moment."""


class ClusterClient:
    """One session, submitted to and watched by one program that knows every member."""

    def __init__(
        self, folder: Path, machines: Sequence[ClusterMachine], session_id: str, chance: random.Random
    ) -> None:
        self._folder, self._machines, self.session_id, self._chance = folder, machines, session_id, chance
        self._submitted = (folder / SUBMITTED).open("a", buffering=1)
        self.watchers: list[ClusterWatcher] = []

    async def create(self, plan: Mapping[str, Any], working_dir: Path, *, watchers: int, **facts: Any) -> None:
        """Have the session, and watch it from its beginning, more than once if need be."""
        body = {"session_id": self.session_id, "mount_plan": plan, "working_dir": str(working_dir), **facts}
        answer = await self._ask("POST", SESSIONS, body)
        assert answer.status == 201, answer
        for number in range(watchers):
            chance = random.Random(self._chance.random())
            self.watchers.append(ClusterWatcher(self._folder, self._machines, self.session_id, str(number), chance))

    async def submit(self, prompt: str, **facts: Any) -> str:
        """Submit a turn until it is accepted, and return its correlation id."""
        key = uuid.uuid4().hex
        self._note(key, prompt, None)
        body = {"prompt": prompt, "queue": True, **facts}
        answer = await self._ask("POST", f"{SESSIONS}/{self.session_id}/execute/stream", body, key)
        assert answer.status == 202, f"{prompt!r} was answered {answer}"
        correlation_id = str(json.loads(answer.body)["correlation_id"])
        self._note(key, prompt, correlation_id)
        return correlation_id

    async def until_ended(self, correlation_id: str) -> Mapping[str, Any]:
        """Wait for the end of a turn, and return what was said of it."""
        return await self.watchers[0].until_ended(correlation_id)

    async def run(self, prompt: str, **facts: Any) -> Mapping[str, Any]:
        """Submit a turn and wait for its end."""
        return await self.until_ended(await self.submit(prompt, **facts))

    async def resume(self, agents: Iterable[str] = ()) -> None:
        """Have what a dead member left of it, and of its agents, repaired."""
        for session_id in (*agents, self.session_id):
            (await self._ask("POST", f"{SESSIONS}/{session_id}/resume", {})).json()

    async def close(self) -> None:
        await asyncio.gather(*(watcher.close() for watcher in self.watchers))
        self._submitted.close()

    async def _ask(self, method: str, path: str, body: Mapping[str, Any], key: str | None = None) -> Answer:
        """Ask one member after the other until one of them has an answer that is not about the moment."""
        until, pause_s, said = time.monotonic() + PATIENCE_S, _FIRST_PAUSE_S, "nothing"
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        while time.monotonic() < until:
            machine = self._chance.choice(self._machines)
            try:
                async with asyncio.timeout(_ANSWER_S), await Connection.open(machine.url, machine.token) as connection:
                    answer = await connection.ask(method, path, json.dumps(body).encode(), headers)
            except BROKEN as error:
                said = f"{machine.name}: {error!r}"
            else:
                if answer.status < 500 and _code(answer) not in _LATER:
                    return answer
                said = f"{machine.name}: {answer.status} {answer.body[:500]!r}"
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        raise AssertionError(f"{method} {path} was not answered; the last answer was {said}")

    def _note(self, key: str, prompt: str, correlation_id: str | None) -> None:
        said = {"session_id": self.session_id, "key": key, "prompt": prompt, "correlation_id": correlation_id}
        self._submitted.write(json.dumps({**said, "is_accepted": correlation_id is not None}) + "\n")


def _code(answer: Answer) -> str | None:
    if answer.status < 400:
        return None
    try:
        return str(json.loads(answer.body).get("code"))
    except ValueError:
        return None
