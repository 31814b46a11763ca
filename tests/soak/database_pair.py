"""PostgreSQL as a cluster has it: a primary, and on demand a synchronous standby that can take its place.

The two can be told apart by nothing but their ports; whoever connects reaches them through proxies.
"""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path
from typing import Any, LiteralString
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from amplifierd.store.postgres.local_server import USER, LocalServer

SETTINGS = {
    "fsync": "off",  # no machine fails here, only processes
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "wal_keep_size": "256MB",
}
_AUDIT = Path(__file__).parent / "cluster_audit.sql"


class DatabasePair:
    """A primary that is running, and a standby once there is one. `servers` begins with the present primary."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0
        self.servers = [LocalServer(self._new_directory(), settings=SETTINGS)]
        self.servers[0].start()
        self.password = urlsplit(self.primary.address()).password or ""

    @property
    def primary(self) -> LocalServer:
        return self.servers[0]

    def connect(self) -> psycopg.Connection[Any]:
        """Return a connection to the primary, with all rights and past every proxy."""
        return psycopg.connect(self.primary.address(), autocommit=True, connect_timeout=10)

    def now(self) -> datetime:
        """Return what time the database believes it is."""
        with self.connect() as connection:
            found = connection.execute("SELECT clock_timestamp()").fetchone()
        assert found is not None
        return found[0]

    def add_role(self, name: str) -> None:
        """Have a user who does everything in the name of the owner, and is told apart by those who look."""
        with self.connect() as connection:
            role, owner = sql.Identifier(name), sql.Identifier(USER)
            statements: tuple[LiteralString, ...] = (
                "CREATE ROLE {role} LOGIN PASSWORD {password}",
                "GRANT {owner} TO {role}",
                "ALTER ROLE {role} SET role TO {owner}",
            )
            for statement in statements:
                values = {"role": role, "owner": owner, "password": sql.Literal(self.password)}
                connection.execute(sql.SQL(statement).format(**values))

    def begin_audit(self, daemons: dict[int, str]) -> None:
        """Have the database note who writes what from now on; `daemons` are the roles by the pids that are there."""
        with self.connect() as connection:
            connection.execute(_AUDIT.read_text().encode())
            for pid, role in daemons.items():
                connection.execute(
                    "INSERT INTO audit.members (member_id, state, who)"
                    " SELECT member_id, state, %s FROM amplifier.members WHERE pid = %s",
                    [role, pid],
                )

    def add_standby(self) -> LocalServer:
        """Have a standby without which nothing is committed."""
        directory = self._new_directory()
        self.primary.run("pg_basebackup", "-D", str(directory / "data"), "-R", "-c", "fast", "-d", self._replication())
        standby = LocalServer(directory, settings=SETTINGS)
        standby.start()
        self.servers.append(standby)
        self._set("synchronous_standby_names", "*")
        with self.connect() as connection:
            in_step = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
            while connection.execute(in_step).fetchone() != (1,):
                connection.execute("SELECT pg_sleep(0.02)")
        return standby

    def restart(self) -> None:
        """End the primary as a power failure would, and start it again where it was."""
        port = self.primary.port
        self.primary.kill()
        self.primary.start(port=port)

    def promote(self) -> None:
        """End the primary for good and let its standby take its place, alone."""
        self.servers.pop(0).kill()
        with self.connect() as connection:
            connection.execute("SELECT pg_promote()")
        self._set("synchronous_standby_names", "")

    def stop(self) -> None:
        for server in self.servers:
            server.kill()

    def _set(self, name: str, value: str) -> None:
        with self.connect() as connection:
            connection.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value)))
            connection.execute("SELECT pg_reload_conf()")

    def _replication(self) -> str:
        return f"{self.primary.address()}?application_name=standby"

    def _new_directory(self) -> Path:
        """Return a directory for a server, which belongs to whoever PostgreSQL runs as and knows the password."""
        self._made += 1
        directory = self._folder / f"server{self._made}"
        directory.mkdir(parents=True)
        if self._made > 1:
            first = self._folder / "server1"
            shutil.copy2(first / "password", directory / "password")
            owner = first.stat()
            for path in (directory, directory / "password"):
                shutil.chown(path, owner.st_uid, owner.st_gid)
        return directory
