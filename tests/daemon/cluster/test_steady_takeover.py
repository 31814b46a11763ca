"""A member goes on taking sessions over after an error that no one foresaw."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from stored_sessions import new_session

from amplifierd.cluster import takeover
from amplifierd.cluster.cluster import Cluster
from amplifierd.paths import Paths
from amplifierd.store.hold import Holder
from amplifierd.store.postgres.store import PostgresStore
from amplifierd.store_address import StoreAddress


async def test_a_session_is_taken_over_although_a_table_was_away_for_a_moment(
    postgres_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "INTERVAL_S", 0.02)
    paths, address = Paths.from_environment(tmp_path, environ={}), StoreAddress.parse(postgres_address)
    gone, store = PostgresStore(paths, address), PostgresStore(paths, address)
    await gone.create(new_session("s1"), Holder.of_this_process("test"))
    taken: list[str] = []

    async def take(session_id: str) -> None:
        taken.append(session_id)
        await store.release(await store.acquire(session_id, Holder.of_this_process("test")))

    cluster = Cluster(store, b"token" * 8, address=None, labels={}, load=dict, take_over=take, on_fenced=_nothing)
    await cluster.start()
    with psycopg.connect(address.conninfo, autocommit=True) as outside:
        _rename(outside, address.schema, "holds", "holds_away")
        await _until(lambda: any(loop.name == "takeover" for loop in store.supervisor.degraded))
        _rename(outside, address.schema, "holds_away", "holds")

    assert await store.members.fence(await gone.members.require(), by_operator=True)
    await _until(lambda: taken == ["s1"])

    await cluster.end()
    await cluster.close()
    await gone.close()
    await store.close()


async def _nothing() -> None:
    pass


def _rename(connection: psycopg.Connection, schema: str, table: str, to: str) -> None:
    statement = sql.SQL("ALTER TABLE {}.{} RENAME TO {}")
    connection.execute(statement.format(sql.Identifier(schema), sql.Identifier(table), sql.Identifier(to)))


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110 - other threads work
            await asyncio.sleep(0.02)
