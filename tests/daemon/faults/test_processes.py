"""`kill -9` of the daemon, and of the daemon with its workers: the next start finds everything that was stored."""

from __future__ import annotations

import pytest
from conversation import Conversation
from hurt_daemon import HurtDaemon


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
