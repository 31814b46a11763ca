"""What members of a store share beside sessions: small values, and word that something changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import psycopg
import pytest
from stored_sessions import message, new_session

from amplifierd.store.hold import Holder
from amplifierd.store.postgres.store import PostgresStore

OpenPostgres = Callable[..., PostgresStore]
ELSEWHERE = Holder(pid=4711, started=1.0, boot_id="another", host="another-machine", kind="test")


async def test_a_value_is_put_once_read_everywhere_and_expires(
    open_postgres: OpenPostgres, sql: psycopg.Connection
) -> None:
    one, two = open_postgres().shared, open_postgres().shared
    answers = await asyncio.gather(*(store.put_if_absent("key", "k", n) for n, store in enumerate([one, two] * 5)))

    stored = await two.get("key", "k")
    assert answers.count(None) == 1
    assert answers[stored] is None
    await one.put("key", "k", {"done": [1, None]}, expires_in_s=3600)
    await one.put("key", "l", 2)
    await one.put("login", "k", "other")
    assert await two.list("key") == {"k": {"done": [1, None]}, "l": 2}
    sql.execute("UPDATE shared_values SET expires_at = now() - interval '1 s' WHERE kind = 'key' AND key = 'k'")
    assert (await two.get("key", "k"), await two.list("key")) == (None, {"l": 2})
    assert await two.put_if_absent("key", "k", "anew") is None
    assert (await one.delete("key", "k"), await one.delete("key", "k")) == (True, False)
    assert await one.get("login", "k") == "other"


async def test_word_of_a_change_wakes_the_other_members(open_postgres: OpenPostgres) -> None:
    one, two = open_postgres(), open_postgres()
    woken: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    for channel in ("amplifier_turns", "amplifier_holds"):
        two.notifications.subscribe(channel, lambda word, channel=channel: woken.put_nowait((channel, word)))
    await two.members.join()
    async with asyncio.timeout(10):
        assert {await woken.get(), await woken.get()} == {("amplifier_turns", ""), ("amplifier_holds", "")}  # connected
        await one.notifications.notify("amplifier_turns", "member_x")
        assert await woken.get() == ("amplifier_turns", "member_x")
        await one.release(await one.create(new_session("s1"), ELSEWHERE))
        assert await woken.get() == ("amplifier_holds", "s1")


async def test_a_process_that_was_stopped_in_a_write_does_not_keep_its_session(
    open_postgres: OpenPostgres, sql: psycopg.Connection
) -> None:
    one, two = open_postgres(), open_postgres()
    hold = await one.create(new_session("s1"), ELSEWHERE)
    sql.execute("BEGIN")
    sql.execute("SELECT FROM holds FOR SHARE")  # as a process has it that is stopped before it commits

    taken = await two.acquire("s1", ELSEWHERE, take_over=True)

    assert taken.epoch == hold.epoch + 1
    await two.append_messages(taken, [message("x")])
    with pytest.raises(psycopg.errors.AdminShutdown):
        sql.execute("COMMIT")
