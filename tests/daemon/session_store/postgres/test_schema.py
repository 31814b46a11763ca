"""The tables of a store: made by whoever comes first, migrated from older formats, left alone in newer ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import psycopg
import pytest
from stored_sessions import event, message, new_session

from amplifierd.exceptions import FormatUnsupportedError
from amplifierd.store.hold import Holder
from amplifierd.store.postgres.schema import FORMAT_VERSION
from amplifierd.store.postgres.store import PostgresStore
from amplifierd.store.protocol import SessionQuery

OpenPostgres = Callable[..., PostgresStore]
ME = Holder.of_this_process("test")


async def test_many_who_come_at_once_make_the_tables_once(open_postgres: OpenPostgres, sql: psycopg.Connection) -> None:
    stores = [open_postgres() for _ in range(6)]

    pages = await asyncio.gather(*(store.list(SessionQuery()) for store in stores))

    assert [page.total for page in pages] == [0] * 6
    assert sql.execute("SELECT format_version FROM format").fetchall() == [(FORMAT_VERSION,)]


async def test_a_newer_format_is_refused_unless_it_says_that_older_programs_can_use_it(
    open_postgres: OpenPostgres, sql: psycopg.Connection
) -> None:
    await open_postgres().create(new_session("s1"), ME)
    newer = FORMAT_VERSION + 1
    sql.execute("UPDATE format SET format_version = %s, readable_by = %s", [newer, FORMAT_VERSION])
    neighbour = open_postgres()
    await neighbour.update(await neighbour.acquire("s1", ME, take_over=True), name="x")
    assert sql.execute("SELECT format_version FROM format").fetchall() == [(newer,)]

    sql.execute("UPDATE format SET readable_by = %s", [newer])
    with pytest.raises(FormatUnsupportedError, match=f"has format {newer}, this version reads up to {FORMAT_VERSION}"):
        await open_postgres().read("s1")
    assert sql.execute("SELECT format_version FROM format").fetchall() == [(newer,)]


async def test_a_store_without_append_ids_gets_them_and_its_older_programs_still_append(
    open_postgres: OpenPostgres, sql: psycopg.Connection
) -> None:
    """As the format before had it, with what its programs wrote."""
    first = open_postgres()
    await first.create(new_session("s1", events=[event(1)], messages=[message("x")]), ME)
    await first.close()
    for table in ("messages", "events"):
        sql.execute(f"ALTER TABLE {table} DROP COLUMN append_id".encode())
    sql.execute("UPDATE format SET format_version = 2, readable_by = 1")

    store = open_postgres()
    hold = await store.acquire("s1", ME)
    for _ in range(2):  # the second time it is recognised
        await store.append_events(hold, [event(2)], append_id="a" * 32)
    sql.execute("INSERT INTO events SELECT number, 3, 3, 'tool:pre', %s FROM sessions", ['{"seq":3}'])
    await store.append_events(hold, [event(4)])

    assert [one["seq"] for one in await store.read_events("s1")] == [1, 2, 3, 4]
    assert len(await store.read_messages("s1")) == 1
    assert sql.execute("SELECT format_version, readable_by FROM format").fetchall() == [(FORMAT_VERSION, 1)]
