"""Queues of turns with real workers behind them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from worker_bench import PATIENCE_S, PROMPT, WorkerBench, until

from amplifierd.turns.durable.durable_turn_queue import DurableTurnQueue
from amplifierd.turns.local_turn_queue import LocalTurnQueue
from amplifierd.turns.turn_queue import TurnQueue
from amplifierd.workers.live_sessions import LiveEvent, SubmittedTurn, TurnRequest


@dataclass(frozen=True)
class TurnBench:
    """A queue, the home and workers that it has its turns run in, and the ends of turns that any member refused."""

    turns: TurnQueue
    workers: WorkerBench
    ends_elsewhere: list[LiveEvent] = field(default_factory=list)

    async def begin(self, session_id: str, folder: Path) -> SubmittedTurn:
        """Submit a turn that runs until the file `go` is in the folder, and wait until it has begun."""
        submitted = await self.turns.submit(session_id, TurnRequest(PROMPT))
        await until((folder / "begun").exists)
        return submitted

    async def settle(self, session_id: str) -> None:
        """Wait until a session has nothing to do any more."""
        async with asyncio.timeout(PATIENCE_S):
            while (await self.turns.waiting(session_id)).prompts or self._is_busy(session_id):  # noqa: ASYNC110 - other processes work
                await asyncio.sleep(0.02)

    def _is_busy(self, session_id: str) -> bool:
        state = self.workers.live.state(session_id)
        return state is not None and state.activity != "idle"


@asynccontextmanager
async def open_local(folder: Path) -> AsyncIterator[TurnBench]:
    async with WorkerBench(folder) as workers:
        yield TurnBench(LocalTurnQueue(workers.home.sessions, workers.live), workers)


@asynccontextmanager
async def open_durable(folder: Path, address: str) -> AsyncIterator[TurnBench]:
    async with WorkerBench(folder, store=address) as workers:
        ends: list[LiveEvent] = []
        turns = DurableTurnQueue(workers.home.sessions, workers.live, workers.events.append, ends.append)
        await turns.start()
        try:
            yield TurnBench(turns, workers, ends)
        finally:
            await turns.stop()
            await workers.live.stop(grace_s=0)
            await turns.close()
