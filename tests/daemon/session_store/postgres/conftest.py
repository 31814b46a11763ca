"""Stores of one database, as several processes have them, and the database itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from amplifierd.paths import Paths
from amplifierd.store.postgres.store import PostgresStore
from amplifierd.store_address import StoreAddress

OpenPostgres = Callable[..., PostgresStore]


@pytest.fixture
async def open_postgres(postgres_address: str, tmp_path: Path) -> AsyncIterator[OpenPostgres]:
    """Open the store of the test as a further process would; all are closed at the end."""
    opened: list[PostgresStore] = []

    def open_store(address: str = postgres_address, **options: object) -> PostgresStore:
        paths = Paths.from_environment(tmp_path, environ={})
        opened.append(PostgresStore(paths, StoreAddress.parse(address), **{"program": "test", **options}))
        return opened[-1]

    yield open_store
    for store in opened:
        await store.close()


@pytest.fixture
def sql(postgres_address: str) -> Iterator[psycopg.Connection]:
    """The database of the test, past the store."""
    address = StoreAddress.parse(postgres_address)
    with psycopg.connect(address.conninfo, autocommit=True, options=f"-c search_path={address.schema}") as connection:
        yield connection
