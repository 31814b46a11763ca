"""`kill -9` of the daemon, and of the daemon with its workers: the next start finds everything that was stored."""

from __future__ import annotations

import pytest
from conversation import Conversation
from hurt_daemon import HurtDaemon


@pytest.mark.parametrize("with_workers", [False, True], ids=["the daemon", "the daemon and its workers"])
def test_what_was_stored_outlives_a_kill(daemon: HurtDaemon, with_workers: bool) -> None:
    conversation = Conversation.begin(daemon, f"kill-{with_workers}")
    turn = conversation.misbehave()

    daemon.kill(with_workers=with_workers)
    daemon.start()

    shown = daemon.client().get(f"/sessions/{conversation.session_id}").json()
    assert (shown["status"], shown["last_error"]["code"]) == ("active", "interrupted")
    assert conversation.prompts() == ["the first words", "misbehave"]
    conversation.check()
    assert conversation.done(turn)["status"] == "failed"
