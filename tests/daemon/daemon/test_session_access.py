"""Who owns a session: remembered for a bounded number of trees, and read again for the others."""

from pathlib import Path

import pytest

from amplifierd import open_home
from amplifierd.daemon import session_access
from amplifierd.daemon.callers import Caller
from amplifierd.daemon.session_access import SessionAccess


async def test_an_owner_that_was_forgotten_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_access, "_MOST_OWNERS", 2)
    home = open_home(tmp_path / "home", offline=True)
    mine, other = Caller("mine", "me", "run"), Caller("other", "you", "run")
    access = SessionAccess(home)
    for session_id in ("one", "two", "three"):
        await home.sessions.create("foundation/offline", working_dir=tmp_path, session_id=session_id, owner="me")
        await access.get(mine, session_id)

    for session_id in ("one", "two", "three"):
        assert access.visible_to(mine)(session_id)
        assert not access.visible_to(other)(session_id)
    assert not access.visible_to(mine)("gone")
    assert access.visible_to(Caller("root", "root", "admin"))("gone")
    await home.sessions.close()
