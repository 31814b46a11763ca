"""A store that is closed finishes what is under way, and takes nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import psycopg
import pytest
from stored_sessions import event, new_session

from amplifierd.exceptions import StoreUnavailableError
from amplifierd.sessions.events.journal import Journal
from amplifierd.sessions.events.tree_events import TreeEvents
from amplifierd.sessions.secret_values import SecretValues
from amplifierd.store.hold import Holder
from amplifierd.store.postgres.store import PostgresStore

ME = Holder.of_this_process("test")

OpenPostgres = Callable[..., PostgresStore]

_WAITING = """
SELECT count(*) FROM pg_locks JOIN pg_database ON oid = database WHERE NOT granted AND datname = current_database()
"""


async def test_a_closed_store_stays_closed(open_postgres: OpenPostgres) -> None:
    store, other = open_postgres(), open_postgres()
    hold = await store.create(new_session("s1"), ME)
    await store.append_events(hold, [event(0)])

    await store.close()

    with pytest.raises(StoreUnavailableError, match="was closed"):
        await store.append_events(hold, [event(1)])
    assert [one["seq"] for one in await other.read_events("s1")] == [0]


async def test_a_write_under_way_is_finished_before_the_store_is_closed(
    open_postgres: OpenPostgres, sql: psycopg.Connection
) -> None:
    store, other = open_postgres(), open_postgres()
    hold = await store.create(new_session("s1"), ME)
    with sql.transaction():
        sql.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
        writing = asyncio.create_task(store.append_events(hold, [event(0)]))
        await _until_one_waits(sql)
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0.05)

    await closing
    await writing

    assert [one["seq"] for one in await other.read_events("s1")] == [0]


async def test_what_is_shown_is_what_is_stored_also_where_a_write_was_given_up(
    open_postgres: OpenPostgres, sql: psycopg.Connection
) -> None:
    store = open_postgres(patience_s=0.0)
    new = new_session("s1")
    hold = await store.create(new, ME)
    tree, shown = TreeEvents("s1"), list[int]()
    tree.subscribe(lambda event: shown.append(event["sequence"]) or False)
    journal = Journal(store, hold, new.record, tree, SecretValues([]))

    journal.hear("tool:outcome", {})
    await tree.settle()
    with sql.transaction():
        sql.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
        journal.hear("tool:post", {})
        await tree.settle()
    journal.hear("tool:outcome", {})
    await tree.settle()

    lines = sql.execute("SELECT line, seq FROM events ORDER BY line").fetchall()
    assert lines == [(1, 1), (2, 3)]
    assert shown == [1, 3]


async def _until_one_waits(sql: psycopg.Connection) -> None:
    async with asyncio.timeout(10):
        while sql.execute(_WAITING).fetchone() == (0,):  # noqa: ASYNC110 - the database does not say
            await asyncio.sleep(0.01)
