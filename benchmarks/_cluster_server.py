"""A PostgreSQL for benchmarks: a server of its own with a real disk below it, and what it counts."""

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from amplifierd.store.postgres.local_server import LocalServer


@dataclass(frozen=True)
class Counted:
    """What a server has done so far: transactions that wrote, and bytes of its log; and connections of ours now."""

    commits: int
    log_bytes: int
    connections: int


class Server:
    """A running PostgreSQL, with as many stores as one likes."""

    def __init__(self, server: LocalServer) -> None:
        self._server = server

    def new_store(self) -> str:
        """Return the address of an empty store."""
        return f"{self._server.address()}?schema=bench_{uuid.uuid4().hex}"

    def count(self) -> Counted:
        return Counted(
            *self._row(
                "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint,"
                " (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint,"
                " (SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'amplifier%')"
            )
        )

    def transactions(self) -> int:
        """Return how many there were, with those that only read; what connections did counts once they are closed."""
        return self._row("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")[0]

    def _row(self, query: str) -> tuple[int, ...]:
        with psycopg.connect(self._server.address()) as connection:
            row = connection.execute(query).fetchone()
        assert row is not None
        return tuple(row)


@contextmanager
def running_server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="bench-postgres-") as directory:  # it belongs to whom the server runs as
        server = LocalServer(Path(directory))
        server.start()
        try:
            yield Server(server)
        finally:
            server.kill()
