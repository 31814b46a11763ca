"""What a daemon removes by itself."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import amplifierd
from amplifierd.home import Home
from amplifierd.server.upkeep import Upkeep

PLAN = {
    "session": {"orchestrator": {"module": "loop-basic"}, "context": {"module": "context-simple"}},
    "providers": [{"module": "provider-mock"}],
}


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    settings = {"sessions": {"retention_days": 3, "trash_days": 2}}
    home = amplifierd.open_home(tmp_path / "home", offline=True, overrides=settings)
    yield home
    await home.sessions.close()


async def test_old_sessions_are_removed_as_the_settings_say(home: Home, tmp_path: Path) -> None:
    ended, active, deleted = [await home.sessions.create(plan=PLAN, working_dir=tmp_path) for _ in range(3)]
    await home.sessions.end(ended.session_id)
    file = home.paths.sessions / ended.session_id / "metadata.json"
    long_ago = "2020-01-01T00:00:00.000000Z"
    file.write_text(file.read_text().replace(str(home.sessions.get(ended.session_id).ended_at), long_ago))
    await home.sessions.delete(deleted.session_id)
    (entry,) = (home.paths.sessions / ".trash").iterdir()
    entry.rename(entry.with_name(f"20200101T000000.000000Z~{deleted.session_id}"))

    await Upkeep(home.sessions, home.paths.cache).look()

    assert [record.session_id for record in home.sessions.list().sessions] == [active.session_id]
    assert home.sessions.deleted() == ()
