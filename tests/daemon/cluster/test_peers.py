"""Requests to other members, when something is wrong at this end or the other."""

from __future__ import annotations

import pytest

from amplifierd.cluster.destination import Destination
from amplifierd.cluster.peers import Peers
from amplifierd.exceptions import MemberError


async def test_a_daemon_that_has_left_says_that_nothing_was_sent() -> None:
    peers = Peers(b"t" * 32, "member_a")
    await peers.close()

    with pytest.raises(MemberError, match="was not asked") as raised:
        await peers.ask(Destination("member_b", "http://127.0.0.1:9"), "/api/v1/cluster", caller="")

    assert not raised.value.was_sent
