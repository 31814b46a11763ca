"""One PostgreSQL server for a whole run of tests, however many processes take part in it.

Whoever needs it first starts a keeper, `python postgres_server.py DIRECTORY PID`, which starts the server and ends it,
with all of its data, when the run with that process id is over.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import uuid
from pathlib import Path

import psycopg
from filelock import FileLock

from amplifierd.store.hold import find_start
from amplifierd.store.postgres.local_server import LocalServer

FAST = {"fsync": "off", "full_page_writes": "off", "max_connections": "300", "shared_buffers": "64MB"}
"""A test does not outlive its machine."""

_START_S = 90.0
_POLL_S = 0.05
_WATCH_S = 0.5


def shared_server(run_directory: Path, run_pid: int) -> str:
    """Return the address of the run's server without a database, which is started if it is not running yet."""
    told = run_directory / "postgres.json"
    with FileLock(run_directory / "postgres.lock"):
        if not told.exists():
            command = [sys.executable, __file__, str(told), str(run_pid)]
            os.posix_spawn(sys.executable, command, os.environ, setsid=True)
            limit = time.monotonic() + _START_S
            while not told.exists():
                assert time.monotonic() < limit, "PostgreSQL was not started in time"
                time.sleep(_POLL_S)
    address: str = json.loads(told.read_text())["address"]
    return address


def new_database(server: str) -> str:
    """Return the address of an empty database of its own."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    return f"{server}/{name}"


def keep(told: Path, run_pid: int) -> None:
    """Run a server until the run is over."""
    begun = find_start(run_pid)
    directory = Path(tempfile.mkdtemp(prefix="amplifier-postgres-"))
    server = LocalServer(directory, settings=FAST)
    try:
        server.start()
        written = told.with_suffix(".new")
        written.write_text(json.dumps({"address": server.address("x").removesuffix("/x"), "keeper": os.getpid()}))
        written.rename(told)
        while find_start(run_pid) == begun:
            time.sleep(_WATCH_S)
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    keep(Path(sys.argv[1]), int(sys.argv[2]))
