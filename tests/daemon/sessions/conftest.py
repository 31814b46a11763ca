"""A home and a working directory for each test, and the three ways to describe an agent."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from agents_at_work import KINDS, Kind, open_home

from amplifierd.home import Home


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    home = open_home(tmp_path)
    yield home
    await home.sessions.close()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "notes.md").write_text("# Notes\n\n- buy milk\n")
    return folder


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param  # type: ignore[no-any-return] # one of KINDS
