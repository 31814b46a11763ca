"""A daemon that the others shut out joins again, also if the store is away just then."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psycopg
from psycopg import AsyncConnection

from amplifierd.cluster.cluster import Cluster
from amplifierd.paths import Paths
from amplifierd.store.postgres.store import PostgresStore
from amplifierd.store_address import StoreAddress


async def test_a_member_that_was_fenced_joins_again_once_the_store_is_there(
    postgres_address: str, tmp_path: Path
) -> None:
    failures: list[str] = []

    class Unsteady(AsyncConnection):
        async def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
            if failures:
                raise psycopg.OperationalError(failures.pop())
            return await super().wait(gen, *args, **options)

    async def let_fail() -> None:
        failures.append("it is away")

    paths, address = Paths.from_environment(tmp_path, environ={}), StoreAddress.parse(postgres_address)
    store, other = (
        PostgresStore(paths, address, patience_s=0.0, connection_type=Unsteady),
        PostgresStore(paths, address),
    )
    cluster = Cluster(store, b"token" * 8, address=None, labels={}, load=dict, take_over=_nothing, on_fenced=let_fail)
    await cluster.start()
    first = cluster.member_id
    assert await other.members.fence(first, by_operator=True)

    async with asyncio.timeout(30):
        while cluster.member_id == first:  # noqa: ASYNC110 - it learns of it in its own time
            await asyncio.sleep(0.05)

    assert failures == []
    joined = [member.member_id for member in await other.members.list() if member.state == "active"]
    assert joined == [cluster.member_id]
    await cluster.end()
    await cluster.close()
    for each in (store, other):
        await each.close()


async def _nothing(session_id: str) -> None:
    """Take nothing over: nobody has a session."""
