"""The index is a cache: whatever happens to its file, lists and searches say what the sessions' files say."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from stored_sessions import message, new_session

from amplifier_foundation.sources import ProgressEvent
from amplifierd.paths import Paths
from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Holder
from amplifierd.store.protocol import SessionQuery


@pytest.fixture
async def paths(tmp_path: Path, me: Holder) -> Paths:
    """A home with three sessions and an index."""
    paths = Paths.from_environment(tmp_path, environ={})
    store = FileStore(paths)
    for number in range(3):
        new = new_session(f"s{number}", name=f"name {number}", messages=[message(f"hello {number}")], tags=["t"])
        await store.release(await store.create(new, me))
    await store.close()
    assert paths.index_file.exists()
    return paths


async def answers(store: FileStore) -> list[list[str]]:
    page = await store.list(SessionQuery(tag="t", sort="session_id"))
    return [
        [record.session_id for record in page.sessions],
        sorted(hit.record.session_id for hit in await store.search("hello")),
        sorted(hit.record.session_id for hit in await store.search("name 1")),
    ]


ALL = [["s0", "s1", "s2"], ["s0", "s1", "s2"], ["s1"]]


def remove(index: Path) -> None:
    index.unlink()


def fill_with_garbage(index: Path) -> None:
    index.write_bytes(os.urandom(20_000))


def empty(index: Path) -> None:
    index.write_bytes(b"")


def cut(index: Path) -> None:
    index.write_bytes(index.read_bytes()[:9000])


def damage_pages(index: Path) -> None:
    content = bytearray(index.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    index.write_bytes(content)


def take_away_a_table(index: Path) -> None:
    execute(index, "DROP TABLE tags")


def make_older(index: Path) -> None:
    execute(index, "UPDATE meta SET value = 0 WHERE key = 'format_version'")


def forget_a_session(index: Path) -> None:
    execute(index, "DELETE FROM sessions WHERE session_id = 's1'")


def invent_a_session(index: Path) -> None:
    execute(
        index, "INSERT INTO sessions (session_id, name, status, last_activity_at) VALUES ('s9', 'x', 'active', '3')"
    )
    execute(
        index, "INSERT INTO tags SELECT 't', '3', 's9', 'active', NULL, 1, id FROM sessions WHERE session_id = 's9'"
    )


def execute(index: Path, statement: str) -> None:
    connection = sqlite3.connect(index)
    with connection:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    "spoil",
    [
        remove,
        fill_with_garbage,
        empty,
        cut,
        damage_pages,
        take_away_a_table,
        make_older,
        forget_a_session,
        invent_a_session,
    ],
)
async def test_a_spoiled_index_is_put_right(paths: Paths, me: Holder, spoil: Callable[[Path], None]) -> None:
    for leftover in paths.state.glob("index.db-*"):
        leftover.unlink()
    spoil(paths.index_file)

    store = FileStore(paths)
    assert await answers(store) == ALL
    hold = await store.acquire("s0", me)
    await store.update(hold, tags=[])
    assert (await answers(store))[0] == ["s1", "s2"]
    await store.close()

    again = FileStore(paths)
    assert (await again.list(SessionQuery(tag="t"))).total == 2
    await again.close()


@pytest.mark.parametrize("spoil", [remove, fill_with_garbage, take_away_a_table])
async def test_an_index_that_is_spoiled_while_it_is_used_is_put_right(
    paths: Paths, me: Holder, spoil: Callable[[Path], None]
) -> None:
    store, other = FileStore(paths), FileStore(paths)
    assert await answers(store) == await answers(other) == ALL
    spoil(paths.index_file)

    assert await answers(store) == ALL
    hold = await other.create(new_session("s3", name="hello", tags=["t"]), me)
    assert (await answers(other))[0] == (await answers(store))[0] == ["s0", "s1", "s2", "s3"]
    await store.close()
    await other.delete(hold)
    assert await answers(other) == ALL
    await other.close()


async def test_a_newer_index_is_left_alone_and_named(paths: Paths, caplog: pytest.LogCaptureFixture) -> None:
    execute(paths.index_file, "UPDATE meta SET value = 99 WHERE key = 'format_version'")
    before = paths.index_file.read_bytes()

    store = FileStore(paths)
    assert await answers(store) == ALL
    await store.close()

    assert paths.index_file.read_bytes() == before
    assert "index.db has format 99, this version reads up to 1" in caplog.text


async def test_an_index_that_another_program_keeps_locked_stops_no_one(paths: Paths, me: Holder) -> None:
    blocker = sqlite3.connect(paths.index_file, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    store = FileStore(paths)
    assert await answers(store) == ALL  # reading goes on

    hold = await store.create(new_session("s3", name="hello", tags=["t"]), me)
    assert "s3" in [record.session_id for record in (await store.list(SessionQuery())).sessions]
    blocker.close()

    assert (await answers(store))[0] == ["s0", "s1", "s2", "s3"]
    await store.delete(hold)
    await store.close()


async def test_a_change_reaches_the_index_by_itself(paths: Paths, me: Holder) -> None:
    store, reader = FileStore(paths), FileStore(paths)
    assert await answers(reader) == ALL
    hold = await store.acquire("s0", me)
    await store.append_messages(hold, [message("news")])

    async with asyncio.timeout(10):
        while not await reader.search("news"):  # noqa: ASYNC110 - a thread of another store writes it
            await asyncio.sleep(0.05)
    await store.close()
    await reader.close()


@pytest.fixture
def bring(tmp_path: Path, paths: Paths, me: Holder) -> Callable[[str], Awaitable[None]]:
    """Move a session of another home to this one, of which nobody tells the index."""

    async def bring(session_id: str) -> None:
        elsewhere = Paths.from_environment(tmp_path / "elsewhere", environ={})
        other = FileStore(elsewhere)
        await other.release(await other.create(new_session(session_id, tags=[session_id]), me))
        await other.close()
        (elsewhere.sessions / session_id).rename(paths.sessions / session_id)

    return bring


async def wait_until_listed(store: FileStore, session_id: str) -> None:
    async with asyncio.timeout(10):
        while not (await store.list(SessionQuery(tag=session_id))).total:  # noqa: ASYNC110 - a look waits its turn
            await asyncio.sleep(0.05)


async def test_a_look_that_was_held_up_does_not_delay_the_next_one(
    paths: Paths, bring: Callable[[str], Awaitable[None]]
) -> None:
    store = FileStore(paths)
    await bring("s3")
    with paths.index_file.with_suffix(".lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        listing = asyncio.create_task(wait_until_listed(store, "s3"))
        await asyncio.sleep(1)
        assert not listing.done()
    await listing

    await bring("s4")
    await wait_until_listed(store, "s4")
    await store.close()


async def test_a_session_that_came_within_the_same_tick_of_the_clock_is_found(
    paths: Paths, bring: Callable[[str], Awaitable[None]]
) -> None:
    tick = time.time_ns() + 60_000_000_000  # the directory keeps this time, as it would if both came at once
    store = FileStore(paths)
    for session_id in ("s3", "s4"):
        await bring(session_id)
        os.utime(paths.sessions, ns=(tick, tick))
        await wait_until_listed(store, session_id)
    await store.close()


async def test_building_the_index_is_reported(paths: Paths, caplog: pytest.LogCaptureFixture) -> None:
    paths.index_file.unlink()
    events: list[ProgressEvent] = []
    caplog.set_level(logging.INFO)

    store = FileStore(paths, progress=events.append)
    await store.list(SessionQuery())
    await store.close()

    assert [(event.what, event.phase) for event in events] == [("session index", "ready")]
    assert events[0].detail.startswith("3 of 3 sessions, ")
    assert "built the index of 3 sessions" in caplog.text


class WithoutFullText(sqlite3.Connection):
    """A connection of an SQLite that was built without full-text search."""

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql == "PRAGMA compile_options":
            return super().execute("SELECT 'THREADSAFE=1'")
        assert "fts5" not in sql
        return super().execute(sql, *parameters)


async def test_without_full_text_search_the_sessions_are_read(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    paths.index_file.unlink()
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=WithoutFullText))

    store = FileStore(paths)
    assert await answers(store) == ALL
    assert (await store.list(SessionQuery(text="hello 2"))).total == 1
    await store.close()

    assert "no full-text search" in caplog.text


async def test_a_closed_store_leaves_no_word_of_what_waits(paths: Paths, me: Holder) -> None:
    store = FileStore(paths)
    await store.create(new_session("s3"), me)
    await store.close()
    assert list(paths.index_file.with_suffix(".pending").iterdir()) == []
