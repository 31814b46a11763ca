"""One daemon with real workers for all tests of sessions over HTTP; each test has sessions of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from real_server import RealServer, real_server
from session_requests import create, execute


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with real_server(tmp_path_factory.mktemp("home")) as served:
        yield served


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    (folder / "notes.md").write_text("- buy milk\n")
    return folder


@pytest.fixture
def admin(server: RealServer) -> httpx2.Client:
    return server.client()


@pytest.fixture(scope="session")
def spoken(server: RealServer, work: Path) -> str:
    """A session with two turns."""
    session_id = create(server.client(), work, "Milk.", "Bread.", name="shopping for the week")
    for prompt in ("What do I need?", "And then?"):
        assert execute(server.client(), session_id, prompt).status_code == 200
    return session_id
