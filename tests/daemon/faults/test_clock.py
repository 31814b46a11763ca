"""A clock that is set while the daemon runs: what counts is the order of things, not the time of day."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conversation import Conversation
from hurt_daemon import HurtDaemon

DAY_S = 24 * 3600.0


@pytest.fixture
def clock(daemon: HurtDaemon) -> Iterator[HurtDaemon]:
    """A daemon whose clock is right again in the end."""
    yield daemon
    daemon.set_clock(0)


@pytest.mark.parametrize("days", [-400, 400], ids=["back", "forward"])
def test_a_jump_loses_nothing(clock: HurtDaemon, days: float) -> None:
    conversation = Conversation.begin(clock, f"clock{days}")
    turn = conversation.misbehave()
    client = clock.client()

    clock.set_clock(days * DAY_S)

    ticket = client.post("/auth/ticket").json()["ticket"]
    (conversation.folder / "go").touch()
    assert conversation.done(turn)["status"] == "completed"
    with client.stream("GET", f"/sessions/{conversation.session_id}/stream?ticket={ticket}&after=0") as response:
        assert response.status_code == 200
    shown = client.get(f"/sessions/{conversation.session_id}").json()
    assert (shown["status"], shown["activity"]) == ("active", "idle")
    conversation.check()
    messages = client.get(f"/sessions/{conversation.session_id}/messages").json()["messages"]
    assert [one["turn"] for one in messages] == sorted(one["turn"] for one in messages)
    clock.set_clock(0)
    conversation.check()
