"""Sessions at work in a cluster, while something happens to it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from itertools import count
from typing import Self

from cluster_client import ClusterClient
from cluster_place import ClusterPlace

_TOOLS = ("look", "note", "send", "task")
_AT_ONCE = 8


class Load:
    """Sessions that run one turn after the other while the block runs."""

    def __init__(self, place: ClusterPlace, name: str, sessions: int, *, rest_s: float = 0.0) -> None:
        """Have so many sessions; each rests for up to `rest_s` after a turn."""
        self._place, self._name, self._sessions, self._rest_s = place, name, sessions, rest_s
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []
        self.turns: Counter[str] = Counter()

    async def __aenter__(self) -> Self:
        few = asyncio.Semaphore(_AT_ONCE)

        async def begin(number: int) -> None:
            async with few:
                client = await self._place.client(f"{self._name}x{number}-1")
            chance = random.Random(self._place.chance.random())
            self._tasks.append(asyncio.create_task(self._run(client, f"quick{self._name}x{number}", chance)))

        await asyncio.gather(*map(begin, range(self._sessions)))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._is_over = True
        if kind is not None:
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=kind is not None)

    async def _run(self, client: ClusterClient, token: str, chance: random.Random) -> None:
        for number in count():
            if self._is_over:
                return
            tools = " ".join(chance.sample(_TOOLS, chance.randrange(len(_TOOLS))))
            end = await client.run(f"{token}t{number}: {tools}")
            self.turns[end["status"]] += 1
            await asyncio.sleep(chance.uniform(0, self._rest_s))
