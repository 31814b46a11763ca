"""The process in which a member's sessions run. What a session does is made up; that it holds, stores and tells is not.

Turns go through the same store, holds, journal and repair as real ones. Between them and the daemon are only messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import psycopg
from virtual_loop import Process

from amplifier_core.exceptions import AmplifierError
from amplifier_system.surroundings import chance, new_token
from amplifierd.exceptions import HoldLostError, MemberFencedError, NotReadyError, SessionNotFoundError
from amplifierd.sessions.conversation.interrupted_turns import InterruptedTurns
from amplifierd.sessions.conversation.interruption import INTERRUPTED, REPAIRED, find_broken_turn
from amplifierd.sessions.events.announcements import Announcements
from amplifierd.sessions.events.journal import Journal
from amplifierd.sessions.events.tree_events import Event, EventSource
from amplifierd.sessions.events.tree_history import last_cursor
from amplifierd.sessions.layers.uncounted_usage import TURN_BEGUN, TURN_DONE
from amplifierd.sessions.secret_values import SecretValues
from amplifierd.store.hold import Hold, Holder
from amplifierd.store.postgres.store import PostgresStore
from amplifierd.store.record import SessionRecord, now
from amplifierd.workers.live_sessions import LiveState, LoadedState, SessionActs, SubmittedTurn, TurnRequest
from amplifierd.workers.recovery import UNKNOWN

_SECRETS = SecretValues()
PIECE = "content_block:delta"

OnTold = Callable[[Event], None]


class _Told(EventSource):
    """Hands every event of a process on."""

    def __init__(self, on_told: OnTold) -> None:
        super().__init__()
        self._on_told = on_told

    def publish(self, event: Event) -> None:
        self._on_told(event)


def announcements(store: PostgresStore, on_told: OnTold) -> Announcements:
    made = Announcements(store, _SECRETS)
    made.events = _Told(on_told)
    return made


class SimulatedSessions:
    """What the queue asks of `home.sessions`."""

    def __init__(self, store: PostgresStore, holder: Holder, on_told: OnTold) -> None:
        settings = SimpleNamespace(sessions=SimpleNamespace(max_queue=100))
        self.runtime = SimpleNamespace(store=store, holder=holder, settings=settings)
        self._interrupted = InterruptedTurns(store, holder, announcements(store, on_told))

    async def read_adopted(self, session_id: str) -> SessionRecord:
        return await self.runtime.store.read(session_id)  # type: ignore[no-any-return]

    def get(self, session_id: str) -> SessionRecord:
        raise SessionNotFoundError(f"there is no session {session_id}, and there are no other applications")

    async def take_over(self, session_id: str, *keep: Any) -> Any:
        return await self._interrupted.take_over(session_id, *keep)


@dataclass
class _Loaded:
    hold: Hold
    journal: Journal
    record: SessionRecord
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class SimulatedWorker:
    """The process of a member's sessions, as `member_id`. Everything here runs inside of it."""

    def __init__(self, store: PostgresStore, holder: Holder, on_told: OnTold) -> None:
        self._store, self._holder = store, holder
        self._announcements = announcements(store, on_told)
        self._interrupted = InterruptedTurns(store, holder, self._announcements)
        self._loaded: dict[str, _Loaded] = {}
        self._loading: dict[str, asyncio.Lock] = {}

    async def load(self, session_id: str) -> LoadedState:
        await self._load(session_id)
        return LoadedState()

    async def unload(self, session_id: str) -> None:
        async with self._loading.setdefault(session_id, asyncio.Lock()):
            loaded = self._loaded.get(session_id)
            if loaded is not None:
                async with loaded.turn:
                    self._loaded.pop(session_id, None)
                    await self._store.release(loaded.hold)

    async def run(self, session_id: str, turn: TurnRequest, on_begun: Callable[[], None]) -> dict[str, Any]:
        """Run a turn to its end; `on_begun` is called when its session is there."""
        loaded = await self._load(session_id)
        on_begun()
        async with loaded.turn:
            try:
                return await self._turn(loaded, turn)
            except (HoldLostError, MemberFencedError):
                await self._give_up(loaded)
                raise
            except (AmplifierError, psycopg.Error):  # it is not known what was written
                await self._give_up(loaded)
                return {UNKNOWN: True}

    async def _give_up(self, loaded: _Loaded) -> None:
        if self._loaded.get(loaded.record.session_id) is loaded:
            del self._loaded[loaded.record.session_id]
        with suppress(AmplifierError, psycopg.Error):
            await self._store.release(loaded.hold)

    async def _load(self, session_id: str) -> _Loaded:
        async with self._loading.setdefault(session_id, asyncio.Lock()):
            if session_id not in self._loaded:
                hold = await self._store.acquire(session_id, self._holder)
                try:
                    self._loaded[session_id] = await self._open(hold)
                except (AmplifierError, psycopg.Error):
                    with suppress(AmplifierError, psycopg.Error):
                        await self._store.release(hold)
                    raise
            return self._loaded[session_id]

    async def _open(self, hold: Hold) -> _Loaded:
        """Open a session, and repair what a process left of it that ended in the middle of a turn."""
        session_id, store = hold.session_id, self._store
        found = await self._interrupted._look(session_id, closely=True)  # as who opens a session does
        if found is not None:
            await self._interrupted._mark_held(hold, found)
        record, messages = await store.read(session_id), await store.read_messages(session_id)
        broken = find_broken_turn(messages, await store.read_events(session_id), record.turn_count)
        begin = (await last_cursor(store, record.root_id)).resumed(hold.epoch)
        tree = self._announcements.tree(record.root_id, begin)
        loaded = _Loaded(hold, Journal(store, hold, record, tree, _SECRETS), record)
        if broken is not None:
            if messages[-1]["role"] != "assistant" or messages[-1]["turn"] != broken.number:
                await store.append_messages(hold, [_message("assistant", INTERRUPTED, broken.number)])
            await loaded.journal.write(REPAIRED, {"turn": broken.number})
            loaded.record = await store.update(hold, turn_count=max(record.turn_count, broken.number))
        return loaded

    async def _turn(self, loaded: _Loaded, turn: TurnRequest) -> dict[str, Any]:
        store, hold, journal, number = self._store, loaded.hold, loaded.journal, loaded.record.turn_count + 1
        journal.correlation_id = turn.correlation_id
        prompt = _message("user", turn.prompt, number, correlation_id=turn.correlation_id, metadata=dict(turn.metadata))
        await store.append_messages(hold, [prompt])
        await journal.write(TURN_BEGUN, {"turn": number})
        said = []
        for _ in range(chance().randrange(4)):
            await asyncio.sleep(chance().expovariate(4))
            for word in range(chance().randrange(3)):
                said.append(f"{number}.{word}")
                journal.hear_delta(PIECE, {"text": said[-1]})
            if chance().random() < 0.5:
                call = new_token(8)
                await journal.write("tool:intent", {"call": call})
                await asyncio.sleep(chance().expovariate(8))
                await journal.write("tool:outcome", {"call": call, "success": True})
        answer = " ".join(said) or "done"
        await store.append_messages(hold, [_message("assistant", answer, number)])
        loaded.record = await store.update(hold, turn_count=number, takeover=None, last_error=None)
        done = {
            "status": "completed",
            "response": answer,
            "turn": number,
            "usage": {},
            "finish_reason": None,
            "error": None,
        }
        await journal.write(TURN_DONE, done)
        return {"session_id": hold.session_id, "correlation_id": turn.correlation_id, "tool_calls": [], **done}


def _message(role: str, content: str, turn: int, **more: Any) -> dict[str, Any]:
    return {"id": new_token(), "timestamp": now(), "role": role, "content": content, "turn": turn, **more}


_Started = tuple[Process, SimulatedWorker]
Send = Callable[[Process, Callable[[], Any]], None]


class SimulatedLive:
    """The daemon's side of the worker: implements `LiveSessions` as far as turns need it.

    `start` starts a worker for the member that the daemon is at that moment; `send` has something done in a process.
    """

    def __init__(self, own: Process, start: Callable[[], Awaitable[_Started]], send: Send) -> None:
        self._own, self._start, self._send = own, start, send
        self._worker: _Started | None = None
        self._starting = asyncio.Lock()
        self._waiting: set[asyncio.Future[Any]] = set()
        self._at_work: dict[str, int] = {}
        self.end_worker: Callable[[Process], None] = lambda process: None

    def state(self, session_id: str) -> LiveState | None:
        return LiveState(session_id, "executing", "worker") if self._at_work.get(session_id) else None

    def states(self) -> Sequence[LiveState]:
        return [LiveState(one, "executing", "worker") for one in self._at_work]

    async def load(self, session_id: str) -> LoadedState:
        return await self._ask(lambda worker: worker.load(session_id))

    async def unload(self, session_id: str) -> None:
        if self._worker is not None:
            await self._ask(lambda worker: worker.unload(session_id))

    async def submit(self, session_id: str, turn: TurnRequest) -> SubmittedTurn:
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._at_work[session_id] = self._at_work.get(session_id, 0) + 1

        def on_begun() -> None:
            self._send(self._own, lambda: begun.done() or begun.set_result(None))

        result = asyncio.ensure_future(self._ask(lambda worker: worker.run(session_id, turn, on_begun)))
        result.add_done_callback(lambda done: self._leave(session_id))
        await asyncio.wait((begun, result), return_when=asyncio.FIRST_COMPLETED)
        if result.done() and not result.cancelled() and (error := result.exception()) is not None and not begun.done():
            raise error
        return SubmittedTurn(session_id, str(turn.correlation_id), "accepted", result)

    def _leave(self, session_id: str) -> None:
        self._at_work[session_id] -= 1
        if not self._at_work[session_id]:
            del self._at_work[session_id]

    @property
    def acts(self) -> SessionActs:
        return SessionActs(self._perform)

    async def _perform(self, session_id: str, method: str, arguments: Mapping[str, Any]) -> Any:
        raise NotReadyError(f"a simulated session does not {method}")

    async def abandon(self) -> None:
        """End the worker at once: others have its sessions."""
        worker, self._worker = self._worker, None
        if worker is not None:
            self.end_worker(worker[0])
        for waiting in tuple(self._waiting):
            if not waiting.done():
                waiting.set_exception(NotReadyError("the worker was ended"))

    async def _ask(self, work: Callable[[SimulatedWorker], Awaitable[Any]]) -> Any:
        """Have the worker do something, and return what it answers."""
        async with self._starting:
            if self._worker is None:
                self._worker = await self._start()
        process, worker = self._worker
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Any] = loop.create_future()
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)

        def settle(value: Any, error: BaseException | None) -> None:
            if waiting.done():
                return
            if error is not None:
                waiting.set_exception(error)
            else:
                waiting.set_result(value)

        async def run() -> None:
            try:
                value, error = await work(worker), None
            except Exception as caught:  # noqa: BLE001 - it belongs to who asked
                value, error = None, caught
            self._send(self._own, lambda: settle(value, error))

        self._send(process, lambda: asyncio.ensure_future(run()))
        return await waiting
