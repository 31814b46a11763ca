"""Stores that the contract suite is run against, and sessions to put into them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from amplifierd.paths import Paths
from amplifierd.session_store.file_store import FileStore
from amplifierd.session_store.hold import Holder
from amplifierd.session_store.protocol import SessionStore

sys.path.append(str(Path(__file__).parents[2] / "stand_ins"))

OpenStore = Callable[[], SessionStore]


def files_in(directory: Path) -> OpenStore:
    return lambda: FileStore(Paths.from_environment(directory, environ={}))


IMPLEMENTATIONS = {"files": files_in}
"""Each makes, for a directory of the test, what opens the one store there, as often as it is called."""


@pytest.fixture(params=sorted(IMPLEMENTATIONS))
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    return IMPLEMENTATIONS[request.param](tmp_path)


@pytest.fixture
async def store(open_store: OpenStore) -> AsyncIterator[SessionStore]:
    store = open_store()
    yield store
    await store.close()


@pytest.fixture
def me() -> Holder:
    return Holder.of_this_process("test")


@pytest.fixture
def other() -> Holder:
    """A process elsewhere, which therefore counts as alive."""
    return Holder(pid=4711, started=1.0, boot_id="another", host="another-machine", kind="worker")
