"""Who owns a session: remembered for a bounded number of trees, and looked up for the others."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from amplifierd import open_home
from amplifierd.server.auth import session_access
from amplifierd.server.auth.callers import Caller
from amplifierd.server.auth.session_access import EventView, SessionAccess
from amplifierd.server.events.event_hub import EventHub
from amplifierd.server.events.event_watch import Batch, GlobalWatch
from amplifierd.server.events.published_event import EventFilter

MINE, OTHER, ADMIN = Caller("mine", "me", "run"), Caller("other", "you", "run"), Caller("root", "root", "admin")


async def test_an_owner_that_was_forgotten_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_access, "_MOST_OWNERS", 2)
    home = open_home(tmp_path / "home", offline=True)
    access = SessionAccess(home.sessions)
    for session_id in ("one", "two", "three"):
        await home.sessions.create("foundation/offline", working_dir=tmp_path, session_id=session_id, owner="me")
        await access.get(MINE, session_id)

    assert [access.may_see(MINE, session_id) for session_id in ("one", "two", "three")] == [None, True, True]
    assert [access.may_see(OTHER, session_id) for session_id in ("two", "three")] == [False, False]
    for session_id in ("one", "two", "three"):
        assert await access.find_out(MINE, session_id)
        assert not await access.find_out(OTHER, session_id)
    assert not await access.find_out(MINE, "gone")
    assert access.may_see(ADMIN, "gone")
    await home.sessions.close()


async def test_a_stream_of_everything_has_what_is_the_callers_own(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home", offline=True)
    for session_id in ("one", "two"):
        await home.sessions.create("foundation/offline", working_dir=tmp_path, session_id=session_id, owner="me")
    hub, access = EventHub("boot"), SessionAccess(home.sessions)
    hub.tell("session:updated", {}, session_id="one")
    callers = (MINE, OTHER, ADMIN)
    watches = [GlobalWatch(hub, EventFilter(), EventView(access, caller), after="boot-0") for caller in callers]
    streams = [watch.batches(0) for watch in watches]
    opened = [await anext(stream) for stream in streams]
    for session_id in ("two", "gone"):
        hub.tell("session:updated", {}, session_id=session_id)
    hub.tell("settings:changed", {})
    hub.tell_owners({"me"}, "operation:updated", {})

    then = [await anext(stream) for stream in streams]

    def told(batches: Sequence[Batch]) -> list[list[str]]:
        return [[event.session_id or event.name for event in batch] for batch in batches]

    mine, everyones = "operation:updated", "settings:changed"
    assert told(opened) == [["one"], [], ["one"]]
    assert told(then) == [["two", everyones, mine], [everyones], ["two", "gone", everyones, mine]]
    for watch in watches:
        watch.close()
    await home.sessions.close()
