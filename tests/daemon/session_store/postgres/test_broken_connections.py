"""Connections break, and servers are restarted: what was appended is there once, in its order."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from postgres_server import FAST
from stored_sessions import event, message, new_session

from amplifierd.exceptions import StoreUnavailableError
from amplifierd.store.hold import Hold, Holder
from amplifierd.store.postgres.local_server import LocalServer
from amplifierd.store.postgres.store import PostgresStore

ME = Holder.of_this_process("test")
CUT = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name LIKE 'amplifier test%' AND datname = current_database()
"""

OpenPostgres = Callable[..., PostgresStore]


async def append_all(store: PostgresStore, hold: Hold, count: int, *, after: int = 0) -> None:
    """Append lines and count in the record, some one after the other and some at the same time."""
    for first in range(after, count, 4):
        await asyncio.gather(
            *(store.append_events(hold, [event(number)]) for number in range(first, first + 4)),
            store.append_messages(hold, [message("x", first)]),
            store.update(hold, turn_count=first),
            store.put_document(hold, "approvals", first),
        )


async def check_all(store: PostgresStore, session_id: str, count: int) -> None:
    assert [one["seq"] for one in await store.read_events(session_id)] == list(range(count))
    assert [one["turn"] for one in await store.read_messages(session_id)] == list(range(0, count, 4))
    record = await store.read(session_id)
    assert (record.revision, record.turn_count) == (count // 4, count - 4)
    assert await store.read_document(session_id, "approvals") == count - 4


async def test_nothing_is_lost_or_doubled_while_connections_are_cut(
    open_postgres: OpenPostgres, sql: psycopg.Connection
) -> None:
    store = open_postgres()
    hold = await store.create(new_session("s1"), ME)
    cuts = 0
    for first in range(0, 400, 40):
        appending = asyncio.create_task(append_all(store, hold, first + 40, after=first))
        await asyncio.sleep(0.01)
        cuts += sql.execute(CUT).rowcount
        await appending

    assert cuts > 5
    await check_all(store, "s1", 400)
    found = await store.holder_of("s1")
    assert found == hold


async def test_creating_acquiring_and_deleting_bear_broken_connections(
    open_postgres: OpenPostgres, sql: psycopg.Connection
) -> None:
    store = open_postgres()
    await store.join()
    is_over = False

    async def cut() -> None:
        while not is_over:
            sql.execute(CUT)
            await asyncio.sleep(0.1)

    cutting = asyncio.create_task(cut())
    for number in range(15):
        hold = await store.create(new_session(f"s{number}"), ME)
        await store.release(hold)
        again = await store.acquire(f"s{number}", ME)
        assert (hold.epoch, again.epoch) == (1, 2)
        assert await store.switch_plan(again, {"n": number}, {}, name="x") == 1
        if number % 3 == 0:
            await store.discard(again)
            await store.restore(f"s{number}")
        elif number % 3 == 1:
            await store.delete(again)
    is_over = True
    await cutting

    assert await store.trash() == ()
    kept = sql.execute("SELECT session_id FROM sessions ORDER BY number").fetchall()
    assert [name for (name,) in kept] == [f"s{number}" for number in range(15) if number % 3 != 1]


async def test_work_is_done_again_that_stood_still_in_a_transaction_until_the_server_gave_it_up(
    open_postgres: OpenPostgres,
) -> None:
    """As when the process is stopped for a while, or the machine sleeps."""
    attempts = 0

    async def stand_still(connection: psycopg.AsyncConnection) -> object:
        nonlocal attempts
        attempts += 1
        async with connection.transaction():
            if attempts == 1:
                await connection.execute("SET idle_in_transaction_session_timeout = '10ms'")
                await asyncio.sleep(0.2)
            return await (await connection.execute("SELECT 'done'")).fetchone()

    assert (await open_postgres().database.read(stand_still), attempts) == (("done",), 2)


@pytest.fixture
def own_server() -> Iterator[LocalServer]:
    """A server that the test may kill."""
    with tempfile.TemporaryDirectory(prefix="amplifier-postgres-", ignore_cleanup_errors=True) as directory:
        Path(directory).chmod(0o755)
        server = LocalServer(Path(directory) / "server", settings={**FAST, "fsync": "on"})
        server.start()
        yield server
        server.kill()


async def test_a_server_that_is_killed_and_comes_back_has_everything_that_was_stored(
    own_server: LocalServer, open_postgres: OpenPostgres
) -> None:
    address = own_server.address()
    store = open_postgres(address)
    hold = await store.create(new_session("s1"), ME)
    appending = asyncio.create_task(append_all(store, hold, 400))
    await asyncio.sleep(0.2)
    assert not appending.done()
    await asyncio.to_thread(own_server.kill)
    await asyncio.sleep(0.2)
    await asyncio.to_thread(own_server.start, port=own_server.port)
    await appending

    await check_all(store, "s1", 400)
    (member,) = await store.members.list()
    assert member.state == "active"

    await store.close()
    await asyncio.to_thread(own_server.stop)
    impatient = open_postgres(address, patience_s=0.5)
    began = time.monotonic()
    with pytest.raises(StoreUnavailableError, match="amplifier store status"):
        await impatient.read("s1")
    assert time.monotonic() - began < 30  # waiting is bounded
    assert "***" in str(impatient.database)


async def test_a_refusal_is_told_at_once(open_postgres: OpenPostgres, postgres_address: str) -> None:
    began = time.monotonic()
    for wrong, why in (("/no_such_database", "does not exist"), (":wrong@", "authentication failed")):
        old = "/test_" if wrong.startswith("/") else ":"
        address = postgres_address
        if old == "/test_":
            address = address[: address.index("/test_")] + wrong
        else:
            user, _, rest = address.removeprefix("postgresql://").partition("@")
            address = f"postgresql://{user.partition(':')[0]}{wrong}{rest}"
        with pytest.raises(StoreUnavailableError, match=why) as refused:
            await open_postgres(address).read("s1")
        assert "wrong" not in str(refused.value)
    assert time.monotonic() - began < 15


async def test_who_asks_a_store_that_is_being_closed_is_answered_or_told_so(open_postgres: OpenPostgres) -> None:
    await open_postgres().create(new_session("s1"), ME)
    store = open_postgres()
    await store.existing([])

    for _ in range(3):
        closing = asyncio.create_task(store.close())
        while not closing.done():
            asked = [store.existing(["s1"]) for _ in range(8)]  # more than there are connections
            for answer in await asyncio.gather(*asked, return_exceptions=True):
                assert isinstance(answer, StoreUnavailableError) or answer == {"s1"}
