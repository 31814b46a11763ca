"""Who takes part in a store that machines share: leases by the database's clock, and fencing."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

import psycopg
import pytest
from stored_sessions import event, message, new_session

from amplifierd.exceptions import HoldLostError, MemberFencedError, SessionHeldError
from amplifierd.store.hold import Holder
from amplifierd.store.postgres.database import MOST_CONNECTIONS
from amplifierd.store.postgres.store import PostgresStore
from amplifierd.store.protocol import SessionQuery

ME = Holder.of_this_process("test")
ELSEWHERE = Holder(pid=4711, started=1.0, boot_id="another", host="another-machine", kind="daemon")
OVER = "UPDATE members SET lease_until = now() - interval '{} s' WHERE member_id = %s"
STEADY = "UPDATE members SET unbroken_since = now() - interval '1 min' WHERE member_id = %s"


@pytest.fixture
def stores(open_postgres: Callable[..., PostgresStore]) -> tuple[PostgresStore, PostgresStore]:
    """Two processes' stores of one database."""
    return open_postgres(program="daemon"), open_postgres(program="command")


async def test_members_join_say_what_they_do_and_leave(stores: tuple[PostgresStore, PostgresStore]) -> None:
    one, two = stores
    await one.members.join(address="http://127.0.0.1:1", labels={"pool": "a'); DROP TABLE members; --"})
    await one.members.renew({"turns": 3})
    await two.list(SessionQuery())  # reading makes no member
    assert len(await two.members.list()) == 1
    hold = await two.create(new_session("s1"), ME)

    first, second = await one.members.list()

    assert (first.kind, first.address, first.labels, first.load) == (
        "daemon",
        "http://127.0.0.1:1",
        {"pool": "a'); DROP TABLE members; --"},
        {"turns": 3},
    )
    assert (first.pid, first.host, first.is_live, first.holds) == (os.getpid(), ME.host, True, 0)
    assert (second.kind, second.holds, second.member_id) == ("command", 1, hold.member_id)
    await two.members.leave()
    assert [member.state for member in await one.members.list()] == ["active", "left"]
    assert await one.holder_of("s1") is None


async def test_a_member_whose_lease_is_over_is_fenced_and_nothing_of_it_is_written_any_more(
    stores: tuple[PostgresStore, PostgresStore], sql: psycopg.Connection
) -> None:
    late, other = stores
    hold = await late.create(new_session("s1"), ELSEWHERE)
    own = await other.members.join(address="http://127.0.0.1:2")
    assert hold.member_id is not None
    assert not await other.members.fence(hold.member_id)  # its lease runs
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    late.members.on_fenced = lambda: loop.call_soon_threadsafe(told.set)

    sql.execute(OVER.format(1), [hold.member_id])
    assert not await other.members.fence(hold.member_id)  # `other` has not seen the database for long enough
    sql.execute(STEADY, [own])
    async with asyncio.timeout(10):
        while not await other.members.fence(hold.member_id):  # it may have renewed its lease just now
            sql.execute(OVER.format(1), [hold.member_id])

    with pytest.raises(HoldLostError):
        await late.append_messages(hold, [message("late")])
    assert await other.abandoned() == ["s1"]
    taken = await other.acquire("s1", ME)
    assert (taken.epoch, taken.member_id, taken.address) == (2, own, "http://127.0.0.1:2")
    async with asyncio.timeout(10):
        await told.wait()
    for work in (late.acquire("s1", ME, take_over=True), late.create(new_session("s2"), ME)):
        with pytest.raises(MemberFencedError, match="fix"):
            await work
    await late.members.join()
    with pytest.raises(SessionHeldError, match=r"reached at http://127\.0\.0\.1:2") as refused:
        await late.acquire("s1", ELSEWHERE)
    assert refused.value.address == "http://127.0.0.1:2"
    await other.append_events(taken, [event(1)])
    assert (await late.read_messages("s1"), await late.last_cursor("s1")) == ([], (0, 1, 0))


async def test_a_hold_outlives_a_time_without_database(
    stores: tuple[PostgresStore, PostgresStore], sql: psycopg.Connection
) -> None:
    """After it everyone's lease is over, and everyone has the time of one lease to come back."""
    away, fresh = stores
    hold = await away.create(new_session("s1"), ELSEWHERE)
    own = await fresh.members.join()
    await away.members.leave()  # so that it renews nothing
    sql.execute("UPDATE members SET state = 'active' WHERE member_id = %s", [hold.member_id])

    sql.execute(OVER.format(10), [hold.member_id])
    with pytest.raises(SessionHeldError):
        await fresh.acquire("s1", ME)
    assert await fresh.abandoned() == []
    sql.execute(STEADY, [own])
    assert await fresh.abandoned() == ["s1"]

    assert (await fresh.acquire("s1", ME)).epoch == 2


async def test_a_worker_holds_sessions_in_the_name_of_its_daemon(stores: tuple[PostgresStore, PostgresStore]) -> None:
    daemon, worker = stores
    member_id = await daemon.join()
    worker.belong_to(member_id)

    hold = await worker.create(new_session("s1"), ME)
    await worker.close()

    assert hold.member_id == member_id
    (only,) = await daemon.members.list()
    assert (only.state, only.holds) == ("active", 1)
    assert await daemon.members.set_state(member_id, "draining")
    found = await daemon.holder_of("s1")
    assert found == hold  # whoever is draining still ends its turns
    assert await daemon.members.fence(member_id, by_operator=True)
    assert await daemon.holder_of("s1") is None


async def test_a_hold_of_before_a_failover_does_not_fit_one_of_after_it_with_the_same_numbers(
    stores: tuple[PostgresStore, PostgresStore], sql: psycopg.Connection
) -> None:
    """A server that lacks what was committed last gives numbers and epochs a second time."""
    store, _ = stores
    hold = await store.create(new_session("s1"), ME)
    await store.append_messages(hold, [message("before")])
    sql.execute("UPDATE holds SET since = '2026-01-01T00:00:00.000000Z'")

    with pytest.raises(HoldLostError):
        await store.append_messages(hold, [message("after")])
    assert len(await store.read_messages("s1")) == 1


async def test_a_lease_is_renewed_while_a_module_blocks_the_event_loop(
    stores: tuple[PostgresStore, PostgresStore], sql: psycopg.Connection
) -> None:
    member_id = await stores[0].join()
    question = "SELECT lease_until FROM members WHERE member_id = %s"
    (before,) = sql.execute(question, [member_id]).fetchone() or (None,)

    time.sleep(3)  # noqa: ASYNC251 - as a module does that knows no better

    (after,) = sql.execute(question, [member_id]).fetchone() or (None,)
    assert after > before


async def test_a_busy_process_opens_few_connections(
    stores: tuple[PostgresStore, PostgresStore], sql: psycopg.Connection
) -> None:
    store, _ = stores
    holds = [await store.create(new_session(f"s{number}"), ME) for number in range(20)]
    reading = (store.read(hold.session_id) for hold in holds * 5)
    writing = (store.append_events(hold, [event(number)]) for number in range(5) for hold in holds)

    await asyncio.gather(*reading, *writing)

    question = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE %s AND datname = current_database()"
    count = 0
    for _ in range(200):  # the server takes its time to forget one that broke on a busy machine
        (count,) = sql.execute(question, ["amplifier daemon%"]).fetchone() or (0,)
        if 1 <= count <= MOST_CONNECTIONS + 1:
            break
        await asyncio.sleep(0.05)
    assert 1 <= count <= MOST_CONNECTIONS + 1
