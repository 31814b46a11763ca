"""A process that takes sessions over and ends itself before what has to follow has begun."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
from hurt_daemon import hurt_daemon
from turn_bench import open_durable, open_local
from worker_bench import MODULES, PATIENCE_S, WorkerBench

from amplifierd.store.hold import Holder
from amplifierd.store.postgres.store import PostgresStore
from amplifierd.store.protocol import SessionStore
from amplifierd.store_address import StoreAddress
from amplifierd.turns.turn_queue import GO_ON

POLICIES = ("continue", "stop")
_BEGUN = """
INSERT INTO turns (turn_id, session_id, member_id, asked_by, state, job_id, priority, request)
VALUES (%s, %s, 'gone', 'gone', 'running', %s, 0, '{}')
"""


async def test_another_member_does_what_follows_if_the_one_that_took_over_is_killed_before(
    store_address: str, tmp_path: Path
) -> None:
    settings = {"store": store_address, "security": {"module_roots": [str(MODULES)]}}
    async with WorkerBench(tmp_path, store=store_address) as workers:
        store = workers.home.sessions.runtime.store
        assert isinstance(store, PostgresStore)
        sessions = [await _session(workers, policy) for policy in POLICIES]
        dead = PostgresStore(workers.home.paths, StoreAddress.parse(store_address))
        for session_id in sessions:
            await _break_off(dead, session_id, Holder.of_this_process())
        assert await store.members.fence(str(dead.members.own_id), by_operator=True)
        with _turns_locked(store_address, sessions), hurt_daemon(Path(tempfile.mkdtemp()), **settings) as taker:
            for session_id in sessions:
                while (await store.read(session_id)).takeover is None:  # noqa: ASYNC110 - another process works
                    await asyncio.sleep(0.02)
            taker.kill(with_workers=True)
        await dead.close()
        assert [(await store.read(session_id)).status for session_id in sessions] == ["active", "active"]
        await store.join()
        for member in await store.members.list():
            if member.member_id != store.members.own_id:
                await store.members.fence(member.member_id, by_operator=True)

    async with open_durable(tmp_path, store_address) as survivor:
        store = survivor.workers.home.sessions.runtime.store
        await _has_followed(store, *sessions)
        await survivor.settle(sessions[0])
        assert await _prompts(store, sessions[0]) == ["Go", GO_ON]


async def test_the_next_start_does_what_follows_if_the_daemon_ended_before(tmp_path: Path) -> None:
    gone = replace(Holder.of_this_process(), pid=2**22 + 1, started=1.0)
    async with open_local(tmp_path) as first:
        sessions = [await _session(first.workers, policy) for policy in POLICIES]
        for session_id in sessions:
            await _break_off(first.workers.home.sessions.runtime.store, session_id, gone)
        await first.turns.start()
        await first.turns.stop()  # the turns are marked, and nothing has followed

    for _ in range(2):
        async with open_local(tmp_path) as second:
            store = second.workers.home.sessions.runtime.store
            await second.turns.start()
            await _has_followed(store, *sessions)
            await second.settle(sessions[0])
            assert await _prompts(store, sessions[0]) == ["Go", GO_ON]
            await second.turns.stop()


async def _session(workers: WorkerBench, policy: str) -> str:
    session_id, _ = await workers.session()
    await workers.home.sessions.update(session_id, on_takeover=policy)
    return session_id


async def _break_off(store: SessionStore, session_id: str, holder: Holder) -> None:
    """Leave a session in a turn whose process is gone."""
    hold = await store.acquire(session_id, holder)
    turn = {"turn": 1, "correlation_id": f"turn-of-{session_id}"}
    await store.append_messages(hold, [{"id": "1", "role": "user", "content": "Go", **turn}])
    await store.append_events(hold, [{"seq": 99, "event": "user_message:saved", "data": {"turn": 1}, **turn}])


@contextmanager
def _turns_locked(store_address: str, sessions: list[str]) -> Iterator[None]:
    """Let no member say that the turns of sessions have ended, which comes before what follows them."""
    address = StoreAddress.parse(store_address)
    with psycopg.connect(address.conninfo) as connection:
        connection.execute(f"SET search_path = {address.schema}".encode())
        for number, session_id in enumerate(sessions):
            connection.execute(_BEGUN, [f"turn-of-{session_id}", session_id, -1 - number])
        connection.commit()
        connection.execute("LOCK TABLE turns IN SHARE ROW EXCLUSIVE MODE")
        yield


async def _has_followed(store: SessionStore, continued: str, stopped: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await store.read(stopped)).status != "failed" or (await store.read(continued)).takeover:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def _prompts(store: SessionStore, session_id: str) -> list[str]:
    return [one["content"] for one in await store.read_messages(session_id) if one["role"] == "user"]
