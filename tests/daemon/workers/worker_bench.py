"""A home with worker processes, and sessions with modules that misbehave."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from agents_at_work import Agent, call

import amplifierd
from amplifierd.home import Home
from amplifierd.workers.live_sessions import LiveEvent, SubmittedTurn, TurnRequest, WorkerState
from amplifierd.workers.workers import Workers

MODULES = Path(__file__).parents[2] / "stand_ins/worker_modules"
FAULTS = {"module": "tool-faults", "source": str(MODULES / "tool-faults")}
PATIENCE_S = 60.0
PROMPT = "misbehave"


class WorkerBench:
    """A home with its workers, and everything that they told."""

    def __init__(self, folder: Path, *, patience_s: float = 20, **settings: Any) -> None:
        overrides = {"security": {"module_roots": [str(MODULES)]}, **settings}
        opened = amplifierd.open_home(folder / "home", offline=True, overrides=overrides)
        self.home: Home = replace(opened, program="daemon")
        self.events: list[LiveEvent] = []
        self.live = Workers(
            self.home.sessions,
            self.home.resolver,
            shipped_collection=self.home.shipped_collection,
            on_event=self._hear,
            patience_s=patience_s,
        )
        self._folder, self._number = folder, 0

    async def __aenter__(self) -> Self:
        await self.live.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.live.stop(grace_s=0)
        await self.home.sessions.close()

    def _hear(self, event: LiveEvent) -> None:
        self.events.append(event)

    def folder(self) -> Path:
        """Return a working directory of its own."""
        self._number += 1
        folder = self._folder / f"work{self._number}"
        folder.mkdir()
        (folder / "notes.md").write_text("# Notes\n")
        return folder

    async def session(self, script: Sequence[Any] = ("Done.",), **parts: Any) -> tuple[str, Path]:
        """Store a session whose model says a script; returns its id and its working directory."""
        folder = self.folder()
        plan = Agent(script, **{"tools": [FAULTS], **parts}).sections()
        record = await self.home.sessions.create(plan=plan, working_dir=folder)
        return record.session_id, folder

    async def run(self, session_id: str, prompt: str = "Hello", **options: Any) -> dict[str, Any]:
        """Run a turn to its end."""
        submitted = await self.live.submit(session_id, TurnRequest(prompt, **options))
        return await self.result(submitted)

    async def result(self, submitted: SubmittedTurn) -> dict[str, Any]:
        return await asyncio.wait_for(asyncio.shield(submitted.result), PATIENCE_S)

    @asynccontextmanager
    async def meanwhile(self, work: Coroutine[Any, Any, Any]) -> AsyncIterator[asyncio.Task[Any]]:
        """Let something run beside the block, and wait for it afterwards."""
        task = asyncio.create_task(work)
        try:
            yield task
        finally:
            await asyncio.wait_for(task, PATIENCE_S)

    def told(self, session_id: str) -> list[str]:
        """Return the names of what was told of a session, without pieces of answers and what it does at the moment."""
        own = [one for one in self.events if one.session_id == session_id and not one.is_delta]
        return [one.name for one in own if one.name != "session:status"]

    def end_of(self, submitted: SubmittedTurn) -> dict[str, Any]:
        """Return the one `execution:done` that was told of a turn."""
        own = [json.loads(one.envelope) for one in self.events if one.session_id == submitted.session_id]
        (end,) = [
            one["data"]
            for one in own
            if (one["event"], one["correlation_id"]) == ("execution:done", submitted.correlation_id)
        ]
        found: dict[str, Any] = end
        return found

    def worker_of(self, session_id: str) -> int:
        """Return the pid of the worker that has a session."""
        return self._worker(session_id).pid

    def state_of_worker(self, session_id: str) -> str:
        return self._worker(session_id).status

    def _worker(self, session_id: str) -> WorkerState:
        state = self.live.state(session_id)
        assert state is not None
        return next(one for one in self.live.workers() if one.worker_id == state.worker_id)


async def until(condition: Callable[[], Any]) -> None:
    """Wait until something outside of this process has happened."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - it happens in another process, which cannot set an event
            await asyncio.sleep(0.02)


def is_alive(file: Path) -> bool:
    """Say whether the process whose pid a file holds is still there; the dead whom nobody reaped do not count."""
    try:
        stat = Path(f"/proc/{file.read_text()}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


def faulty(fault: str, **more: Any) -> list[Any]:
    """Return a script in which the model calls the faulty tool when the prompt says so."""
    return [{**call("fault", fault=fault, **more), "when": {"contains": PROMPT}}, "Done."]
