"""Queues of turns with real workers behind them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from worker_bench import PROMPT, WorkerBench, until

from amplifierd.live_sessions import SubmittedTurn, TurnRequest
from amplifierd.turns.local_turn_queue import LocalTurnQueue
from amplifierd.turns.turn_queue import TurnQueue


@dataclass(frozen=True)
class TurnBench:
    """A queue, and the home and workers that it has its turns run in."""

    turns: TurnQueue
    workers: WorkerBench

    async def begin(self, session_id: str, folder: Path) -> SubmittedTurn:
        """Submit a turn that runs until the file `go` is in the folder, and wait until it has begun."""
        submitted = await self.turns.submit(session_id, TurnRequest(PROMPT))
        await until((folder / "begun").exists)
        return submitted


@asynccontextmanager
async def open_local(folder: Path) -> AsyncIterator[TurnBench]:
    async with WorkerBench(folder) as workers:
        yield TurnBench(LocalTurnQueue(workers.home.sessions, workers.live), workers)
