"""Sessions whose process is gone: found by their holds, and marked where a turn had not ended."""

from dataclasses import replace
from pathlib import Path

from amplifierd import open_home
from amplifierd.session_store.hold import Holder


async def test_a_turn_that_ended_with_its_process_is_marked_without_loading_the_session(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    store = home.sessions.runtime.store
    gone = replace(Holder.of_this_process(), pid=2**22 + 1, started=1.0)
    for session_id, events in (("broken", [{"seq": 1, "event": "user_message:saved"}]), ("whole", [])):
        await home.sessions.create("foundation/offline", working_dir=tmp_path, session_id=session_id)
        hold = await store.acquire(session_id, gone)
        await store.append_events(hold, [{**event, "data": {}} for event in events])

    assert sorted(await store.abandoned()) == ["broken", "whole"]
    assert [one.session_id for one in await home.sessions.mark_interrupted()] == ["broken"]

    error = home.sessions.get("broken").last_error
    assert error is not None
    assert error["code"] == "interrupted"
    assert home.sessions.get("whole").last_error is None
    assert home.sessions.holder("broken") is None
    await home.sessions.close()
