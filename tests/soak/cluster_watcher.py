"""A client that watches one session through any member, and goes on with another one when that is lost.

What it is shown goes into the folder of the run, in the moment in which it comes.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster_evidence import BEGUN, DONE, INTENT, OUTCOME, PIECE, SHOWN
from cluster_machine import ClusterMachine
from plain_http import Connection

from amplifierd.store.cursor import Cursor

SESSIONS = "/api/v1/sessions"
BROKEN = (OSError, EOFError, TimeoutError, ValueError)
"""What a client gets from a member that is lost in the middle of an answer."""

PATIENCE_S = 180.0

_SILENCE_S = 6.0
_PAUSE_S = 0.1
_WHOLE = frozenset({BEGUN, DONE, INTENT, OUTCOME, PIECE, "stream:gap", "stream:error", "stream:overflow"})


class ClusterWatcher:
    """Watches a session from its beginning. `last` is where the latest event stands, `ended` has the ends of turns."""

    def __init__(
        self, folder: Path, machines: Sequence[ClusterMachine], session_id: str, name: str, chance: random.Random
    ) -> None:
        self._machines, self.session_id, self._chance = machines, session_id, chance
        (folder / SHOWN).mkdir(exist_ok=True)
        self._shown = (folder / SHOWN / f"{session_id}.{name}.jsonl").open("w", buffering=1)
        self._links = 0
        self.last = Cursor(0, 0)
        self.ended: dict[str, Mapping[str, Any]] = {}
        self._news = asyncio.Event()
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        self._shown.close()

    async def until_ended(self, correlation_id: str) -> Mapping[str, Any]:
        """Wait for the end of a turn, and return what was said of it."""
        await self._until(lambda: correlation_id in self.ended, f"the end of {correlation_id}")
        return self.ended[correlation_id]

    async def until_number(self, number: int) -> None:
        """Wait until the event with a number, or a later one, was shown."""
        await self._until(lambda: self.last.seq >= number, f"event {number}")

    async def _until(self, is_so: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not is_so():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"{self.session_id} was not shown {what}, the last was {self.last}") from None

    async def _watch(self) -> None:
        while True:
            machine = self._chance.choice(self._machines)
            try:
                await self._watch_at(machine)
            except (*BROKEN, AssertionError):
                pass  # another member may know more
            await asyncio.sleep(_PAUSE_S)

    async def _watch_at(self, machine: ClusterMachine) -> None:
        path, headers = f"{SESSIONS}/{self.session_id}/stream", {"Last-Event-ID": str(self.last)}
        async with asyncio.timeout(_SILENCE_S):
            connection = await Connection.open(machine.url, machine.token)
        async with connection:
            self._links += 1
            chunks, rest = connection.chunks(path, headers), b""
            while True:
                async with asyncio.timeout(_SILENCE_S):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return
                *frames, rest = (rest + chunk).split(b"\n\n")
                for frame in frames:
                    self._take(frame, machine)

    def _take(self, frame: bytes, machine: ClusterMachine) -> None:
        data = next((line[6:] for line in frame.split(b"\n") if line.startswith(b"data: ")), None)
        if data is None:
            return
        event = json.loads(data)
        name, place = event["event"], Cursor.of_event(event)
        kept = {key: event.get(key) for key in ("event", "sequence", "cursor", "session_id", "correlation_id")}
        if name in _WHOLE:
            kept["data"] = event["data"]
        self._shown.write(json.dumps({**kept, "at": time.time(), "link": self._links, "from": machine.name}) + "\n")
        if place is not None:
            self.last = place
        if name == DONE and event["session_id"] == self.session_id:
            self.ended[event["correlation_id"]] = event["data"]
        self._news.set()
