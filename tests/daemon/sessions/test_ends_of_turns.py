"""Whatever becomes of the store while a turn begins or ends: it begins and ends once, and the record counts it."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from agents_at_work import Agent, open_home
from psycopg import AsyncConnection
from stored_sessions import new_session

from amplifierd.exceptions import HoldLostError, StoreUnavailableError
from amplifierd.home import Home
from amplifierd.sessions.events import journal
from amplifierd.sessions.events.journal import Journal
from amplifierd.sessions.events.tree_events import TreeEvents
from amplifierd.sessions.secret_values import SecretValues
from amplifierd.sessions.session import Session
from amplifierd.store.hold import Holder
from amplifierd.store.postgres import database

DONE, BEGUN = "execution:done", "user_message:saved"
_HANGS_S = 0.05
_ALWAYS = 1_000_000
FACTS = ("turn_count", "message_count", "usage")


class Faults:
    """What happens to the statements that write events of a name: refused, answers lost, or not answered in time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._name = self._fault = ""
        self.times = 0
        self.is_hanging = asyncio.Event()
        self._execute = AsyncConnection.execute
        monkeypatch.setattr(AsyncConnection, "execute", self._hurt())
        monkeypatch.setattr(journal, "_AGAIN_S", 0.01)
        self._monkeypatch = monkeypatch

    def next(self, name: str, fault: str, times: int = 1) -> None:
        self._name, self._fault, self.times = name, fault, times
        if "hang" in fault:
            self._monkeypatch.setattr(database, "_CLOSE_S", 0.05)

    def _hurt(self) -> Any:
        async def execute(connection: AsyncConnection, statement: Any, values: Any = None, **options: Any) -> Any:
            bodies = values.get("events", ()) if isinstance(values, dict) else ()
            is_hit = self.times > 0 and any(f'"{self._name}"' in body for body in bodies)
            if is_hit:
                self.times -= 1
            if is_hit and "before" in self._fault:
                await self._fail()
            answer = await self._execute(connection, statement, values, **options)
            if is_hit:
                await self._fail()
            return answer

        return execute

    async def _fail(self) -> None:
        if "hang" in self._fault:
            self.is_hanging.set()
            await asyncio.sleep(_HANGS_S)
            raise TimeoutError
        raise psycopg.OperationalError("the connection broke")


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


@pytest.fixture
async def impatient(postgres_address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Home]:
    """A home whose sessions are in a database, which is away as soon as it fails."""
    monkeypatch.setenv("AMPLIFIERD_STORE", postgres_address)
    home = open_home(tmp_path)
    monkeypatch.setattr(home.sessions.runtime.store.database, "_patience_s", 0.0)
    yield home
    await home.sessions.close()


async def opened(home: Home, work: Path) -> Session:
    return await home.sessions.open(plan=Agent(["One.", "Two."]).sections(), working_dir=work)


async def check(home: Home, session_id: str, *, turns: int) -> None:
    """Look for the marks of the turns, for the numbers of the events, and for what the record counts."""
    store = home.sessions.runtime.store
    events = await store.read_events(session_id)
    marks = Counter(event["event"] for event in events)
    assert (marks[BEGUN], marks[DONE]) == (turns, turns)
    numbers = [event["seq"] for event in events]
    assert numbers == sorted(set(numbers))
    record = await store.read(session_id)
    assert (record.turn_count, record.message_count) == (turns, len(await store.read_messages(session_id)))


@pytest.mark.parametrize("name", [BEGUN, DONE])
@pytest.mark.parametrize("fault", ["refused before", "answer lost"])
async def test_a_mark_of_a_turn_is_stored_once_although_the_database_was_away_for_too_long(
    impatient: Home, work: Path, faults: Faults, name: str, fault: str
) -> None:
    session = await opened(impatient, work)
    shown: list[dict[str, Any]] = []
    session.subscribe(lambda event: shown.append(event) or False)
    faults.next(name, fault, times=2)

    result = await session.execute("First")
    assert (await session.execute("Second")).turn == 2
    await session.close()

    assert (faults.times, result.status) == (0, "completed")
    await check(impatient, session.session_id, turns=2)
    stored = await impatient.sessions.runtime.store.read_events(session.session_id)
    for mark in (BEGUN, DONE):  # what clients saw has the numbers that are stored
        assert [one["sequence"] for one in shown if one["event"] == mark] == [
            one["seq"] for one in stored if one["event"] == mark
        ]


async def test_the_failure_of_an_earlier_event_is_not_that_of_the_end(impatient: Home, faults: Faults) -> None:
    store, new = impatient.sessions.runtime.store, new_session("s1")
    hold = await store.create(new, Holder.of_this_process("test"))
    tree = TreeEvents("s1")
    book = Journal(store, hold, new.record, tree, SecretValues([]))
    await book.begin_turn("1" * 32, [(BEGUN, {"turn": 1})])

    faults.next("request:stored", "refused before")
    await book.write_soon("request:stored", {})
    await tree.settle()
    record = await book.end_turn("1" * 32, [(DONE, {"turn": 1})], {"turn_count": 1})

    assert (faults.times, record.turn_count) == (0, 1)
    await check(impatient, "s1", turns=1)


@pytest.mark.parametrize("fault", ["hang before", "hang after"])
async def test_an_end_that_a_closed_store_did_not_finish_is_left_to_the_next_holder(
    impatient: Home,
    work: Path,
    faults: Faults,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    postgres_address: str,
    fault: str,
) -> None:
    session = await opened(impatient, work)
    faults.next(DONE, fault, times=_ALWAYS)
    turn = asyncio.create_task(session.execute("First"))
    async with asyncio.timeout(30):
        await faults.is_hanging.wait()

    await impatient.sessions.runtime.store.close()
    with pytest.raises((StoreUnavailableError, HoldLostError)):
        await turn

    monkeypatch.undo()
    monkeypatch.setenv("AMPLIFIERD_STORE", postgres_address)
    other = open_home(tmp_path / "other")
    resumed = await other.sessions.resume(session.session_id, take_over=True)
    await check(other, session.session_id, turns=1)
    assert (await resumed.execute("Second")).status == "completed"
    await resumed.close()
    await check(other, session.session_id, turns=2)
    await other.sessions.close()


# --- files


async def test_a_disk_that_fails_once_leaves_one_end(home: Home, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_AGAIN_S", 0.01)
    session = await opened(home, work)
    events = home.sessions.runtime.store.workspace(session.session_id) / "events.jsonl"
    synchronise, failures = os.fsync, list[int]()

    def fail_once(descriptor: int) -> None:
        is_events = os.path.samestat(os.fstat(descriptor), events.stat())
        if is_events and DONE in events.read_text() and not failures:
            failures.append(descriptor)
            raise OSError(errno.EIO, "Input/output error")
        synchronise(descriptor)

    monkeypatch.setattr(os, "fsync", fail_once)
    assert (await session.execute("First")).status == "completed"
    await session.close()

    assert failures
    await check(home, session.session_id, turns=1)


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_record_that_could_not_be_written_is_brought_up_by_the_next_who_opens_the_session(
    home: Home, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    session = await opened(home, work)
    await session.execute("First")
    open_file, is_full = os.open, True

    def no_inode(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if is_full and flags & os.O_EXCL and ".metadata.json." in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return open_file(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", no_inode)
    result = await session.execute("Second")
    is_full = False
    counted = await home.sessions.runtime.store.read(session.session_id)
    assert (result.status, counted.turn_count) == ("completed", 1)
    known = session.record

    if is_killed:  # without a word
        home = open_home(tmp_path)
    else:
        await session.close()
    resumed = await home.sessions.resume(session.session_id, take_over=is_killed)

    await check(home, session.session_id, turns=2)
    assert [getattr(resumed.record, name) for name in FACTS] == [getattr(known, name) for name in FACTS]
    await resumed.close()
    await home.sessions.close()


async def test_a_record_that_a_power_failure_brought_back_is_brought_up_when_the_session_is_opened(
    home: Home, work: Path
) -> None:
    session = await opened(home, work)
    await session.execute("First")
    record = home.paths.sessions / session.session_id / "metadata.json"
    former = record.read_bytes()
    await session.execute("Second")
    known = session.record
    await session.close()
    record.write_bytes(former)

    resumed = await home.sessions.resume(session.session_id)

    await check(home, session.session_id, turns=2)
    assert [getattr(resumed.record, name) for name in FACTS] == [getattr(known, name) for name in FACTS]
    await resumed.close()
