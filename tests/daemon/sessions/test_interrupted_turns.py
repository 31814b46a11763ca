"""Sessions whose process is gone: found by their holds, and marked where a turn had not ended."""

from dataclasses import replace
from pathlib import Path

import pytest

from amplifierd import open_home
from amplifierd.exceptions import SessionStateError
from amplifierd.sessions.conversation.interrupted_turns import CONTINUES
from amplifierd.store.hold import Holder


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


async def test_what_follows_is_up_to_the_session_and_what_went_on_once_is_asked_about(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home", overrides={"sessions": {"on_takeover": "continue"}})
    store = home.sessions.runtime.store
    gone = replace(Holder.of_this_process(), pid=2**22 + 1, started=1.0)
    cases = {"first": ({}, None), "again": ({CONTINUES: 1}, None), "ended": ({}, "stop")}
    for session_id, (metadata, policy) in cases.items():
        await home.sessions.create(
            "foundation/offline", working_dir=tmp_path, session_id=session_id, on_takeover=policy
        )
        hold = await store.acquire(session_id, gone)
        said = {"id": "1", "role": "user", "content": "Go", "turn": 1, "correlation_id": "c", "metadata": metadata}
        await store.append_messages(hold, [said])

    taken = {session_id: await home.sessions.take_over(session_id) for session_id in cases}

    assert {session_id: one and one.action for session_id, one in taken.items()} == {
        "first": "continue",
        "again": "ask",
        "ended": "stop",
    }
    assert (home.sessions.get("again").takeover or {})["action"] == "ask"
    assert await home.sessions.take_over("first") is None
    assert (await home.sessions.repair("first")).closed_turn == 1
    assert [one["role"] for one in home.sessions.messages("first")] == ["user", "assistant"]
    with pytest.raises(SessionStateError):
        await home.sessions.update("first", on_takeover="perhaps")
    await home.sessions.close()
