"""A loop of a member that meets an error which no one foresaw goes on when its cause is gone."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import psycopg
from psycopg import sql
from turn_bench import open_durable

from amplifier_system.tasks import Supervisor
from amplifierd.store.postgres.store import PostgresStore
from amplifierd.workers.live_sessions import TurnRequest

ADDRESS_AND_SCHEMA = "?schema="


async def test_a_member_takes_turns_again_after_a_table_was_away(store_address: str, tmp_path: Path) -> None:
    url, _, schema = store_address.partition(ADDRESS_AND_SCHEMA)
    async with open_durable(tmp_path, store_address) as bench, await psycopg.AsyncConnection.connect(url) as outside:
        await outside.set_autocommit(True)
        session_id, _ = await bench.workers.session(["Said.", "Said again."])
        first = await bench.turns.submit(session_id, TurnRequest("first"))
        assert (await bench.workers.result(first))["status"] == "completed"
        store = bench.workers.home.sessions.runtime.store
        assert isinstance(store, PostgresStore)

        await _rename(outside, schema, "turns", "turns_away")
        await store.notifications.notify("amplifier_turns")
        await _until(lambda: _is_degraded(store.supervisor, "turns"))
        await _rename(outside, schema, "turns_away", "turns")

        second = await bench.turns.submit(session_id, TurnRequest("second"))
        assert (await bench.workers.result(second))["status"] == "completed"


async def test_a_member_whose_loops_cannot_work_gives_up_its_lease(store_address: str, tmp_path: Path) -> None:
    async with open_durable(tmp_path, store_address) as bench:
        store = bench.workers.home.sessions.runtime.store
        assert isinstance(store, PostgresStore)
        own = await store.members.join()
        is_fenced = asyncio.Event()
        loop = asyncio.get_running_loop()
        store.members.on_fenced = lambda: loop.call_soon_threadsafe(is_fenced.set) and None

        store.members.is_fit = lambda: False

        async with asyncio.timeout(30):
            await is_fenced.wait()
        assert [member.state for member in await store.members.list() if member.member_id == own] == ["left"]


def _is_degraded(supervisor: Supervisor, name: str) -> bool:
    return name in {state.name for state in supervisor.degraded}


async def _rename(connection: psycopg.AsyncConnection, schema: str, table: str, to: str) -> None:
    statement = sql.SQL("ALTER TABLE {}.{} RENAME TO {}")
    await connection.execute(statement.format(sql.Identifier(schema), sql.Identifier(table), sql.Identifier(to)))


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110 - other threads work
            await asyncio.sleep(0.02)
