"""Writes that wait at the same time share a commit, and yet each stands for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from stored_sessions import event, new_session

from amplifierd.exceptions import HoldLostError, StoreFullError
from amplifierd.store.hold import Holder
from amplifierd.store.postgres.store import PostgresStore

OpenPostgres = Callable[..., PostgresStore]
ME = Holder.of_this_process("test")
COMMITS = "SELECT count(DISTINCT xmin::text), count(*) FROM events"


@pytest.mark.parametrize(("together", "most"), [(256, 30), (1, 200)])
async def test_appends_to_many_sessions_go_in_few_commits(
    open_postgres: OpenPostgres, sql: psycopg.Connection, together: int, most: int
) -> None:
    store = open_postgres(together=together)
    holds = [await store.create(new_session(f"s{number}"), ME) for number in range(20)]

    await asyncio.gather(*(store.append_events(hold, [event(n)]) for n in range(1, 11) for hold in holds))

    commits, events = sql.execute(COMMITS).fetchone() or (0, 0)
    assert (commits <= most, commits == 200, events) == (True, together == 1, 200)
    for hold in holds:
        assert [one["seq"] for one in await store.read_events(hold.session_id)] == list(range(1, 11))


async def test_a_write_that_is_refused_or_fails_takes_none_of_the_others_with_it(
    open_postgres: OpenPostgres, sql: psycopg.Connection
) -> None:
    store, other = open_postgres(), open_postgres()
    holds = [await store.create(new_session(f"s{number}"), ME) for number in range(10)]
    await other.acquire("s3", ME, take_over=True)
    sql.execute("ALTER TABLE events ADD CHECK (seq <> 13)")  # a mistake that the store knows nothing of

    done = await asyncio.gather(
        *(store.append_events(hold, [event(13 if hold.session_id == "s7" else 1)]) for hold in holds),
        return_exceptions=True,
    )

    failed = {hold.session_id: type(error) for hold, error in zip(holds, done, strict=True) if error is not None}
    assert failed == {"s3": HoldLostError, "s7": psycopg.errors.CheckViolation}
    stored = sql.execute("SELECT session_id FROM sessions JOIN events ON session = number ORDER BY 1").fetchall()
    assert [name for (name,) in stored] == [f"s{number}" for number in range(10) if number not in (3, 7)]


async def test_an_error_that_no_one_foresaw_leaves_nobody_waiting(
    open_postgres: OpenPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_postgres()
    hold = await store.create(new_session("s1"), ME)
    execute = psycopg.AsyncConnection.execute

    async def broken(connection: psycopg.AsyncConnection, statement: Any, values: Any = None, **options: Any) -> Any:
        if isinstance(values, dict) and 7 in values.get("seqs", ()):
            raise LookupError("no one foresaw it")
        return await execute(connection, statement, values, **options)

    monkeypatch.setattr(psycopg.AsyncConnection, "execute", broken)
    async with asyncio.timeout(10):
        with pytest.raises(LookupError, match="foresaw"):
            await store.append_events(hold, [event(7)])
        await store.append_events(hold, [event(8)])

    assert [one["seq"] for one in await store.read_events("s1")] == [8]


async def test_a_database_without_room_refuses_writes_at_once_and_takes_them_later(
    open_postgres: OpenPostgres, sql: psycopg.Connection
) -> None:
    store = open_postgres()
    holds = [await store.create(new_session(f"s{number}"), ME) for number in range(3)]
    sql.execute("""
        CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$;
        CREATE TRIGGER no_room BEFORE INSERT ON events EXECUTE FUNCTION no_room()
    """)

    done = await asyncio.gather(*(store.append_events(hold, [event(1)]) for hold in holds), return_exceptions=True)
    listed = await store.existing(["s0"])
    sql.execute("DROP TRIGGER no_room ON events")
    await store.append_events(holds[0], [event(2)])

    assert [type(error) for error in done] == [StoreFullError] * 3
    assert "room" in str(done[0])
    assert set(listed) == {"s0"}
    assert [one["seq"] for one in await store.read_events("s0")] == [2]
