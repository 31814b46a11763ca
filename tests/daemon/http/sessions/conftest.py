"""Sessions of the daemon that all tests here share; each test has sessions of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from real_server import RealServer
from session_requests import create, execute


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    (folder / "notes.md").write_text("- buy milk\n")
    return folder


@pytest.fixture(scope="session")
def spoken(server: RealServer, work: Path) -> str:
    """A session with two turns."""
    session_id = create(server.client(), work, "Milk.", "Bread.", name="shopping for the week")
    for prompt in ("What do I need?", "And then?"):
        assert execute(server.client(), session_id, prompt).status_code == 200
    return session_id
