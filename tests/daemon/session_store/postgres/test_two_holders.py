"""Two processes that take one session from each other, paused wherever they wait: nothing is written too late."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import AsyncConnection
from stored_sessions import event, message, new_session

from amplifier_system.surroundings import Surroundings
from amplifierd.exceptions import HoldLostError, SessionExistsError, SessionHeldError
from amplifierd.store.hold import Hold, Holder
from amplifierd.store.postgres.store import PostgresStore

OpenPostgres = Callable[..., PostgresStore]

ELSEWHERE = Holder(pid=4711, started=1.0, boot_id="another", host="another-machine", kind="test")
BLOCKED_S = 0.02  # after so long a process that was let go on waits for a lock of the other one


class Pauses:
    """Stops a process whenever it waits for the database, before and after, until it is let go on."""

    def __init__(self) -> None:
        self.are_on = False
        self._changed = threading.Condition()
        self._stopped: list[Future[None]] = []

    async def pause(self) -> None:
        if self.are_on:
            stopped: Future[None] = Future()
            with self._changed:
                self._stopped.append(stopped)
                self._changed.notify_all()
            await asyncio.wrap_future(stopped)

    def go_on(self) -> bool:
        """Let it go on, and wait until it stops again or has to wait; False when it was not stopped."""
        with self._changed:
            if not self._stopped:
                return False
            self._stopped.pop(0).set_result(None)
            self._changed.wait_for(lambda: bool(self._stopped), BLOCKED_S)
        return True

    def connection_type(self) -> type[AsyncConnection]:
        pauses = self

        class PausedConnection(AsyncConnection):
            async def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
                await pauses.pause()
                found = await super().wait(gen, *args, **options)
                await pauses.pause()
                return found

        return PausedConnection


class Process:
    """One of the two, which notes what it was told about each of its writes."""

    def __init__(self, name: str, store: PostgresStore, sql: psycopg.Connection) -> None:
        self.name, self.store, self._sql = name, store, sql
        self.acknowledged: list[str] = []
        self.refused: list[str] = []
        self.seen: list[tuple[int, list[str]]] = []
        self._hold: Hold | None = None
        self._count = 0

    async def run(self, session_id: str, actions: list[str]) -> None:
        for action in actions:
            if action == "acquire" or self._hold is None:
                await self._acquire(session_id)
            if self._hold is not None:
                await getattr(self, action)(self._hold)

    async def _acquire(self, session_id: str) -> None:
        try:
            self._hold = await self.store.acquire(session_id, ELSEWHERE, take_over=True)
        except SessionHeldError:
            return
        epoch = self._hold.epoch
        self.seen.append((epoch, [text for text in stored(self._sql, session_id) if epoch_of(text) < epoch]))

    async def acquire(self, hold: Hold) -> None:
        """Done before every action that is one."""

    async def say(self, hold: Hold) -> None:
        await self._write(hold, lambda text: self.store.append_messages(hold, [message(text)]))

    async def tell(self, hold: Hold) -> None:
        writes = [
            self._write(hold, lambda text: self.store.append_events(hold, [event(1, text=text)])) for _ in range(3)
        ]
        await asyncio.gather(*writes)

    async def change(self, hold: Hold) -> None:
        await self._write(hold, lambda text: self.store.update(hold, name=text), lasting=False)

    async def note(self, hold: Hold) -> None:
        await self._write(hold, lambda text: self.store.put_document(hold, f"note_{text.replace(' ', '_')}", text))

    async def release(self, hold: Hold) -> None:
        await self.store.release(hold)
        self._hold = None

    async def _write(self, hold: Hold, write: Callable[[str], Awaitable[Any]], *, lasting: bool = True) -> None:
        self._count += 1
        text = f"{hold.epoch} {self.name} {self._count}"
        try:
            await write(text)
        except HoldLostError:
            self.refused.append(text)
            self._hold = None
        else:
            self.acknowledged += [text] if lasting else []


def epoch_of(text: str) -> int:
    return int(text.partition(" ")[0])


def stored(sql: psycopg.Connection, session_id: str) -> list[str]:
    """Return what is stored of a session, past the store; of its record what it says last."""
    rows = sql.execute(
        """
        WITH s AS (SELECT number, record FROM sessions WHERE session_id = %s)
        SELECT body::json ->> 'content' FROM s JOIN messages ON session = number
        UNION ALL SELECT body::json #>> '{data,text}' FROM s JOIN events ON session = number
        UNION ALL SELECT body::json #>> '{}' FROM s JOIN documents ON session = number
        UNION ALL SELECT record::json ->> 'name' FROM s WHERE record::json ->> 'name' IS NOT NULL
        """,
        [session_id],
    )
    return sorted(text for (text,) in rows)


ACTIONS = st.lists(st.sampled_from(["acquire", "say", "tell", "change", "note", "release"]), min_size=2, max_size=6)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(first=ACTIONS, second=ACTIONS, turns=st.lists(st.booleans(), max_size=120))
async def test_no_write_takes_effect_under_an_epoch_that_has_passed(
    open_postgres: OpenPostgres, sql: psycopg.Connection, first: list[str], second: list[str], turns: list[bool]
) -> None:
    pauses = Pauses(), Pauses()
    stores = [open_postgres(connection_type=each.connection_type()) for each in pauses]
    new = new_session()
    session_id = new.record.session_id
    await stores[0].add(new, ELSEWHERE)
    for store in stores:
        await store.join()
    processes = [Process(name, store, sql) for name, store in zip("ab", stores, strict=True)]
    for each in pauses:
        each.are_on = True
    running = [
        asyncio.create_task(process.run(session_id, actions))
        for process, actions in zip(processes, (first, second), strict=True)
    ]
    await asyncio.to_thread(interleave, pauses, iter(turns), lambda: all(task.done() for task in running))
    await asyncio.gather(*running)

    left = stored(sql, session_id)
    for process in processes:
        assert set(process.acknowledged) <= set(left)
        assert not set(process.refused) & set(left)
        for epoch, seen in process.seen:
            late = {text for text in left if epoch_of(text) < epoch} - set(seen)
            assert not late, f"written under an older epoch after {epoch} had begun"
    assert len(left) == len(set(left))
    for store in stores:
        await store.close()


TAKE_AND_FREE = """
UPDATE holds SET epoch = epoch + 1, holder = NULL, member_id = NULL
FROM sessions WHERE session = number AND session_id = %s
"""
IS_WAITED_FOR = "SELECT FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"


async def test_a_session_that_was_taken_and_freed_meanwhile_is_acquired(
    open_postgres: OpenPostgres, sql: psycopg.Connection
) -> None:
    store, new = open_postgres(), new_session()
    await store.add(new, ELSEWHERE)
    await store.join()
    with sql.transaction():
        sql.execute(TAKE_AND_FREE, [new.record.session_id])
        acquiring = asyncio.create_task(store.acquire(new.record.session_id, ELSEWHERE))
        async with asyncio.timeout(10):
            while not sql.execute(IS_WAITED_FOR).fetchall():  # noqa: ASYNC110 - it waits in the database
                await asyncio.sleep(0.01)

    assert (await acquiring).session_id == new.record.session_id


def interleave(pauses: tuple[Pauses, Pauses], turns: Iterator[bool], is_over: Callable[[], bool]) -> None:
    """Let one of two processes go on at a time, as the turns say, and then each in turn until both are done."""
    rounds = 0
    while not is_over():
        chosen = next(turns, rounds % 2 == 0)
        rounds += 1
        if not pauses[chosen].go_on() and not pauses[not chosen].go_on():
            threading.Event().wait(0.001)
    for each in pauses:
        each.are_on = False
        while each.go_on():
            pass


async def test_of_two_who_want_a_session_in_the_same_moment_one_has_it(
    open_postgres: OpenPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time_ns()
    monkeypatch.setattr(Surroundings, "time_ns", staticmethod(lambda: now))
    one, two, worker = open_postgres(), open_postgres(), open_postgres()
    worker.belong_to(await one.join())
    await one.add(new_session("s1"), ELSEWHERE)
    first = await one.acquire("s1", ELSEWHERE)

    for other, holder in ((two, ELSEWHERE), (worker, replace(ELSEWHERE, pid=4712))):
        with pytest.raises(SessionHeldError):
            await other.acquire("s1", holder)
    taken = await two.acquire("s1", ELSEWHERE, take_over=True)
    await one.release(first)

    assert (taken.epoch, taken.since) == (first.epoch + 1, first.since)
    with pytest.raises(HoldLostError):
        await one.append_messages(first, [message("late")])
    with pytest.raises(HoldLostError):
        await one.append_messages(replace(taken, member_id=first.member_id), [message("not its own")])
    await two.append_messages(taken, [message("said")])
    assert await one.holder_of("s1") == taken


async def test_of_two_who_create_a_session_in_the_same_moment_one_does(
    open_postgres: OpenPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now)
    hold = await open_postgres().create(new_session("s1"), ELSEWHERE)

    other = open_postgres()
    with pytest.raises(SessionExistsError):
        await other.create(new_session("s1"), ELSEWHERE)
    assert await other.holder_of("s1") == hold
