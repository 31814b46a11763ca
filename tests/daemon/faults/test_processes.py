"""`kill -9` of the daemon, and of the daemon with its workers: the next start finds everything that was stored."""

from __future__ import annotations

import pytest
from conversation import Conversation
from hurt_daemon import HurtDaemon, until


@pytest.mark.parametrize("with_workers", [False, True], ids=["the daemon", "the daemon and its workers"])
def test_what_was_stored_outlives_a_kill(daemon: HurtDaemon, with_workers: bool) -> None:
    conversation = Conversation.begin(daemon, f"kill-{with_workers}")
    turn = conversation.misbehave()
    session = f"/sessions/{conversation.session_id}"
    later = {"prompt": "for later", "queue": True}
    assert daemon.client().post(f"{session}/execute/stream", json=later).json()["status"] == "queued"

    daemon.kill(with_workers=with_workers)
    daemon.start()

    shown = daemon.client().get(f"/sessions/{conversation.session_id}").json()
    assert (shown["status"], shown["last_error"]["code"]) == ("active", "interrupted")
    assert conversation.prompts() == ["the first words", "misbehave"]
    left = {"queue": ["for later"], "held": 1, "total": 1}
    assert daemon.client().get(f"{session}/queue").json() == left
    told = conversation.done(turn)
    assert (told["status"], told["interrupted"]) == ("failed", True)
    conversation.check()
    assert conversation.done(turn) == told
    assert [one["turn"] for one in conversation.ends()] == [1, 2, 3]
    assert "for later" not in conversation.prompts()
    assert daemon.client().get(f"{session}/queue").json() == left
    assert daemon.client().delete(f"{session}/queue/1").json() == {"prompt": "for later"}
    assert daemon.client().get(f"{session}/queue").json()["queue"] == []


def test_on_takeover_says_what_follows_an_interrupted_turn_and_none_is_run_again(daemon: HurtDaemon) -> None:
    talks = {policy: Conversation.begin(daemon, f"on-{policy}") for policy in ("ask", "continue", "stop")}
    for policy, talk in talks.items():
        changed = daemon.client().patch(f"/sessions/{talk.session_id}", json={"on_takeover": policy}).json()
        assert (changed["on_takeover"], changed["takeover"]) == (policy, None)
        talk.misbehave()

    daemon.kill()
    daemon.start()

    until(lambda: len(talks["continue"].ends()) == 3)
    until(lambda: talks["stop"].shown()["status"] == "failed")
    asked = talks["ask"].shown()
    assert (asked["status"], asked["takeover"]["turn"], asked["takeover"]["action"]) == ("active", 2, "ask")
    assert talks["ask"].run("and now?").status_code == 200
    assert talks["ask"].shown()["takeover"] is None
    assert (talks["continue"].shown()["takeover"], talks["continue"].ends()[-1]["status"]) == (None, "completed")
    first, second, third = talks["continue"].prompts()
    assert (first, second) == ("the first words", "misbehave")
    assert "ended before the turn did" in third
    assert "on_takeover" in talks["stop"].shown()["error_message"]
    for talk in talks.values():
        assert len(talk.told("tool:intent")) == 1
