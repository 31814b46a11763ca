"""Stores that the contract suite is run against, and sessions to put into them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import warm_python
from simulated_connection import connection_type
from simulated_server import Server

from amplifierd.paths import Paths
from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Holder
from amplifierd.store.postgres.store import PostgresStore
from amplifierd.store.protocol import SessionStore
from amplifierd.store_address import StoreAddress

OpenStore = Callable[[], SessionStore]


def files_in(directory: Path) -> Callable[[], FileStore]:
    return lambda: FileStore(paths_in(directory))


def postgres_at(address: str, directory: Path) -> Callable[[], PostgresStore]:
    """Make what opens the store at an address as often as it is called, each time as a process of its own would."""
    return lambda: PostgresStore(paths_in(directory), StoreAddress.parse(address), program="test")


def paths_in(directory: Path) -> Paths:
    return Paths.from_environment(directory, environ={})


def simulated_in(directory: Path) -> Callable[[], PostgresStore]:
    """Make what opens a store over the simulated database, each time as a process of its own would."""
    connect, address = connection_type(Server()), StoreAddress.parse("postgresql://simulated/amplifier")
    return lambda: PostgresStore(
        paths_in(directory), address, program="test", connection_type=connect, loop=asyncio.get_running_loop()
    )


@pytest.fixture(params=["files", "postgres", "simulated"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    """What opens the one store of the test, as often as it is called, for each implementation."""
    if request.param == "files":
        return files_in(tmp_path)
    if request.param == "simulated":
        return simulated_in(tmp_path)
    return postgres_at(request.getfixturevalue("postgres_address"), tmp_path)


@pytest.fixture
async def store(open_store: OpenStore) -> AsyncIterator[SessionStore]:
    store = open_store()
    yield store
    await store.close()


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Where the store that keeps files has them."""
    return paths_in(tmp_path)


@pytest.fixture
async def file_store(tmp_path: Path) -> AsyncIterator[FileStore]:
    store = files_in(tmp_path)()
    yield store
    await store.close()


@pytest.fixture
def me() -> Holder:
    return Holder.of_this_process("test")


@pytest.fixture
def other() -> Holder:
    """A process elsewhere, which therefore counts as alive."""
    return Holder(pid=4711, started=1.0, boot_id="another", host="another-machine", kind="worker")


StartPython = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start_python() -> Iterator[StartPython]:
    """Start interpreters that run a text of code; those still there at the end are killed."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: object, bare: bool = False) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code if bare else f"{PREAMBLE}\n{code}", *map(str, arguments)]
        process = warm_python.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


PREAMBLE = f"""
import asyncio, json, os, resource, signal, sys
from pathlib import Path
sys.path.append({str(Path(__file__).parents[2] / "stand_ins")!r})
from stored_sessions import event, message, new_session
from amplifierd.exceptions import *
from amplifierd.paths import Paths
from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Hold, Holder
from amplifierd.store.protocol import SessionQuery

me = Holder.of_this_process("child")
home = Path(sys.argv[1])

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # in one piece: forked children share the pipe

def open_store():
    return FileStore(Paths.from_environment(home, environ={{}}))
"""
