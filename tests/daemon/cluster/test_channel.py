"""Members prove to each other that they know the cluster's token, request by request."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifierd.cluster.channel import Channel, Channels, Greeting, Request
from amplifierd.exceptions import MemberUntrustedError, RequestRefusedError, UnauthorizedError

TOKEN, OTHER = b"t" * 32, b"o" * 32
ASKED = Request.of("POST", "/api/v1/sessions/s/execute?a=1", [("accept", "*/*"), ("x-amplifier-caller", "me")], b"{}")


def opened(receiver: Channels) -> Channel:
    greeting = Greeting(TOKEN, "a", "b")
    return greeting.channel(receiver.welcome(greeting.hello))


def test_a_request_and_its_answer_are_known_to_come_from_members() -> None:
    receiver = Channels(TOKEN, "b")
    channel = opened(receiver)
    number, seal = channel.seal(ASKED)

    answer = receiver.accept(channel.channel_id, number, seal, ASKED)

    assert answer.sender == "a"
    assert channel.is_answer(number, 200, answer.seal(200))
    assert not channel.is_answer(number, 500, answer.seal(200))
    assert not channel.is_answer(number + 1, 200, answer.seal(200))


def test_who_does_not_know_the_token_is_noticed_on_either_side() -> None:
    stranger, receiver = Greeting(OTHER, "a", "b"), Channels(TOKEN, "b")
    with pytest.raises(UnauthorizedError):
        receiver.welcome(stranger.hello)
    with pytest.raises(RequestRefusedError, match="this is b, not c"):
        receiver.welcome(Greeting(TOKEN, "a", "c").hello)

    member, impostor = Greeting(TOKEN, "a", "b"), Channels(OTHER, "b")
    forged = impostor.welcome(Greeting(OTHER, "a", "b").hello)
    with pytest.raises(MemberUntrustedError, match="member b does not know"):
        member.channel(forged)
    with pytest.raises(MemberUntrustedError):  # nor does the member's own proof, sent back, stand for another one
        member.channel(replace(forged, proof=member.hello.proof))


@pytest.mark.parametrize(
    "changed",
    [
        replace(ASKED, method="GET"),
        replace(ASKED, target="/api/v1/sessions/other/execute?a=1"),
        replace(ASKED, headers=(("accept", "*/*"), ("x-amplifier-caller", "admin"))),
        replace(ASKED, headers=()),
        replace(ASKED, body_hash="0" * 64),
    ],
)
def test_a_request_that_was_changed_is_refused(changed: Request) -> None:
    receiver = Channels(TOKEN, "b")
    channel = opened(receiver)
    number, seal = channel.seal(ASKED)
    with pytest.raises(UnauthorizedError):
        receiver.accept(channel.channel_id, number, seal, changed)
    receiver.accept(channel.channel_id, number, seal, ASKED)


@given(st.permutations(range(200)))
def test_each_number_counts_once_in_whatever_order_requests_come(order: list[int]) -> None:
    receiver = Channels(TOKEN, "b")
    channel = opened(receiver)
    sealed = [channel.seal(ASKED) for _ in order]
    for place in order:
        receiver.accept(channel.channel_id, *sealed[place], ASKED)
    for number, seal in sealed:
        with pytest.raises(UnauthorizedError, match="is a repeat"):
            receiver.accept(channel.channel_id, number, seal, ASKED)


def test_what_is_older_than_anyone_remembers_is_refused() -> None:
    receiver = Channels(TOKEN, "b")
    channel = opened(receiver)
    first = channel.seal(ASKED)
    for _ in range(9000):
        receiver.accept(channel.channel_id, *channel.seal(ASKED), ASKED)
    with pytest.raises(UnauthorizedError):
        receiver.accept(channel.channel_id, *first, ASKED)


def test_a_channel_of_one_process_is_unknown_to_the_next() -> None:
    channel = opened(Channels(TOKEN, "b"))
    with pytest.raises(UnauthorizedError, match="no such channel"):
        Channels(TOKEN, "b").accept(channel.channel_id, *channel.seal(ASKED), ASKED)
