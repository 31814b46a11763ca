"""Several daemons on one store: any of them answers any client, and the end of one loses nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import httpx2
import pytest
from cluster_members import WAITS, Member, Members, impostor, until, watching

from amplifierd.cluster.channel import Greeting
from amplifierd.server.auth.callers import Caller, carried


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory, postgres_database: str) -> Iterator[Members]:
    cluster = Members(tmp_path_factory.mktemp("cluster"), f"{postgres_database}?schema=cluster")
    yield cluster
    cluster.end()


def test_any_member_answers_any_request(members: Members) -> None:
    one, two, three = members
    session_id = members.session(one, "First.", WAITS, "Second.", "Third.")
    assert two.api.post(f"/sessions/{session_id}/execute", json={"prompt": "a"}).json()["response"] == "First."

    with (
        watching(one.api, f"/sessions/{session_id}/stream") as stream,
        watching(three.api, "/events") as everything,
        ThreadPoolExecutor(1) as pool,
    ):
        turn = pool.submit(three.api.post, f"/sessions/{session_id}/execute", json={"prompt": "b"})
        until(lambda: "tool:pre" in stream.names())
        for member in members:
            assert member.api.get(f"/sessions/{session_id}").json()["activity"] == "executing"
            listed = member.api.get("/sessions", params={"activity": "executing"}).json()["sessions"]
            assert [each["session_id"] for each in listed] == [session_id]
        assert one.api.post(f"/sessions/{session_id}/steer", json={"content": "hurry"}).status_code == 202
        (members.folders[session_id] / "go").touch()
        assert turn.result().json()["response"] == "Second."
        until(lambda: "execution:done" in stream.names() and "execution:done" in everything.names(session_id))

    numbers = stream.numbers(session_id)
    assert numbers == [*range(numbers[0], numbers[0] + len(numbers))]
    assert everything.numbers(session_id) == numbers

    started = one.api.post("/cache/verify", params={"wait": "false"}).json()["operation_id"]
    for member in members:
        assert member.api.get(f"/operations/{started}").json()["id"] == started
        assert started in [each["id"] for each in member.api.get("/operations").json()["operations"]]
    asked = {"model": "any", "messages": [{"role": "user", "content": "d"}], "stream": True}
    named = {"X-Amplifier-Session": session_id, "Idempotency-Key": "completed"}
    for member in (three, *members):
        url, headers = member.process.url, {**member.api.headers, **named}
        completed = httpx2.post(f"{url}/v1/chat/completions", json=asked, headers=headers, timeout=60)
        assert "Third." in completed.text
        assert completed.text.endswith("data: [DONE]\n\n")

    key = {"Idempotency-Key": "once"}
    answers = [each.api.post(f"/sessions/{session_id}/execute", json={"prompt": "c"}, headers=key) for each in members]
    assert [answer.json()["turn"] for answer in answers] == [4, 4, 4]
    assert len(one.api.get(f"/sessions/{session_id}/turns").json()["turns"]) == 4


def test_who_is_not_a_member_and_who_does_not_own_a_session_is_refused(members: Members) -> None:
    one, two, _ = members
    alice, bob = (two.client(one.new_token(name)) for name in ("alice", "bob"))  # what one makes, the other knows
    session_id = members.session(one, "For Alice.", client=alice)
    assert one.api.post(f"/sessions/{session_id}/execute", json={"prompt": "SECRET"}).json()["response"] == "For Alice."

    with watching(bob, "/events") as seen:
        refused = [
            bob.get(f"/sessions/{session_id}"),
            bob.get(f"/sessions/{session_id}/messages"),
            bob.get(f"/sessions/{session_id}/stream"),
            bob.post(f"/sessions/{session_id}/execute", json={"prompt": "mine?"}),
            bob.post(f"/sessions/{session_id}/cancel", json={}),
            bob.delete(f"/sessions/{session_id}"),
        ]
        assert alice.patch(f"/sessions/{session_id}", json={"name": "hers"}).json()["name"] == "hers"
    assert {answer.status_code for answer in refused} == {404}
    assert bob.get("/sessions").json()["sessions"] == []
    assert not [one for one in seen.events if session_id in str(one)]
    assert [each["name"] for each in alice.get("/sessions").json()["sessions"]] == ["hers"]

    admin = {"X-Amplifier-Caller": carried(Caller("me", "me", "admin"), "127.0.0.1")}
    channel = {"X-Amplifier-Channel": f"0123 1 {'0' * 64} {'0' * 64}"}
    for forged in (admin, channel, {**admin, **channel}):
        assert bob.get("/tokens", headers=forged).status_code == 401
        assert httpx2.get(f"{two.process.url}/api/v1/cluster", headers=forged).status_code == 401

    hello = Greeting(b"another token of another cluster", "member_x", two.member_id).hello
    assert httpx2.post(f"{two.process.url}/cluster/hello", json=asdict(hello)).status_code == 401

    with impostor() as (address, heard), members.address_of(one, address):
        answer = until(lambda: _refused(alice.post(f"/sessions/{session_id}/execute", json={"prompt": "SECRET"})))
    assert (answer.status_code, answer.json()["code"]) == (502, "member-untrusted")
    assert set(heard) == {"/cluster/hello"}
    assert "SECRET" not in str(heard.values())


def test_logins_tickets_and_revoked_tokens_count_at_every_member(members: Members) -> None:
    one, two, _ = members
    token = one.new_token("carol")
    page = {"Origin": one.process.url, "Sec-Fetch-Site": "same-origin", "X-Amplifier-Page": "1"}
    cookie = httpx2.post(f"{one.process.url}/auth/login", json={"token": token}, headers=page).headers["Set-Cookie"]
    browser = {"Cookie": cookie.partition(";")[0], "Sec-Fetch-Site": "same-origin"}
    me, stream = f"{two.process.url}/api/v1/auth/me", f"{two.process.url}/api/v1/events"
    assert httpx2.get(me, headers=browser).json()["name"] == "carol"

    ticket = one.client(token).post("/auth/ticket").json()["ticket"]
    for status in (200, 401):
        with httpx2.stream("GET", f"{stream}?ticket={ticket}") as answer:
            assert answer.status_code == status

    bearer = {"Authorization": f"Bearer {token}"}
    assert httpx2.get(me, headers=bearer).status_code == 200
    assert one.api.delete("/tokens/carol").status_code == 204
    until(lambda: httpx2.get(me, headers=bearer).status_code == 401)
    assert httpx2.get(me, headers=browser).status_code == 401


def _refused(answer: httpx2.Response) -> httpx2.Response | None:
    return answer if answer.status_code != 200 else None


def test_a_home_with_another_token_does_not_join(members: Members, tmp_path: Path) -> None:
    stranger = Member(tmp_path, members.store, token="not-that-of-the-cluster-0123456789")
    with pytest.raises(AssertionError, match="ended with 2"):
        stranger.process.start()


def test_a_member_that_is_stopped_is_replaced_and_can_write_nothing_when_it_wakes_up(members: Members) -> None:
    one, two, three = members
    session_id = members.session(one, "First.", WAITS, on_takeover="ask")
    assert one.api.post(f"/sessions/{session_id}/execute", json={"prompt": "a"}).json()["response"] == "First."
    before = one.member_id

    with watching(two.api, f"/sessions/{session_id}/stream") as stream, ThreadPoolExecutor(1) as pool:
        turn = pool.submit(three.api.post, f"/sessions/{session_id}/execute", json={"prompt": "b"})
        until(lambda: "tool:pre" in stream.names())
        one.stop_processes()
        answer = turn.result()
        until(lambda: "execution:done" in stream.names())
        (members.folders[session_id] / "go").touch()  # what was stopped goes on with its tool when it wakes up
        one.let_go_on()
        until(lambda: one.find_id() != before)
        again = one.api.post(f"/sessions/{session_id}/execute", json={"prompt": "c"})
        until(lambda: stream.names().count("execution:done") == 2)

    assert answer.json()["code"] == "aborted"
    assert again.json()["response"] == "First."  # in another process the script begins anew
    numbers = stream.numbers(session_id)
    assert numbers == sorted(set(numbers))
    stored = two.api.get(f"/sessions/{session_id}/events", params={"limit": 1000}).json()["events"]
    assert [event["event"] for event in stored].count("tool:intent") == 1
    assert {event["seq"] for event in stored if numbers[0] <= event["seq"] <= numbers[-1]} <= {*numbers}
    states = {each["member_id"]: each["state"] for each in two.api.get("/cluster").json()["members"]}
    assert (states[before], states[one.find_id()]) == ("fenced", "active")


def test_a_member_that_is_killed_in_a_turn_loses_nothing(members: Members) -> None:
    one, two, three = members
    killed = one.find_id()
    session_id = members.session(one, "First.", WAITS, on_takeover="continue")
    assert one.api.post(f"/sessions/{session_id}/execute", json={"prompt": "a"}).json()["response"] == "First."

    with (
        watching(two.api, f"/sessions/{session_id}/stream") as stream,
        watching(three.api, "/events") as everything,
        ThreadPoolExecutor(1) as pool,
    ):
        turn = pool.submit(two.api.post, f"/sessions/{session_id}/execute", json={"prompt": "b"})
        until(lambda: "tool:pre" in stream.names())
        one.process.kill()
        assert two.api.post(f"/cluster/members/{killed}/fence").json()["fenced"]
        answer = turn.result()
        until(lambda: stream.names().count("execution:done") == 2)
        until(lambda: everything.names(session_id).count("execution:done") == 2)

    assert answer.json()["code"] == "aborted"
    messages = three.api.get(f"/sessions/{session_id}/messages").json()["messages"]
    assert [message["role"] for message in messages][-1] == "assistant"
    assert not (members.folders[session_id] / "go").exists()  # nobody ran the tool again
    numbers = stream.numbers(session_id)
    heard = everything.numbers(session_id)  # from the moment on at which its member had heard of the others
    assert numbers == sorted(set(numbers))
    assert heard == numbers[-len(heard) :]


def test_a_member_that_is_drained_ends_its_turns_and_gives_its_sessions_away(members: Members) -> None:
    _, two, three = members
    session_id = members.session(two, "First.", WAITS, "Second.")
    assert two.api.post(f"/sessions/{session_id}/execute", json={"prompt": "a"}).json()["response"] == "First."

    with watching(two.api, f"/sessions/{session_id}/stream") as stream, ThreadPoolExecutor(2) as pool:
        turn = pool.submit(three.api.post, f"/sessions/{session_id}/execute", json={"prompt": "b"})
        until(lambda: "tool:pre" in stream.names())
        assert three.api.post(f"/cluster/members/{two.member_id}/drain").status_code == 202
        until(lambda: three.state_of(two) == "draining")
        later = pool.submit(two.api.post, f"/sessions/{session_id}/execute", json={"prompt": "c", "queue": True})
        (members.folders[session_id] / "go").touch()
        assert turn.result().json()["response"] == "Second."
        until(lambda: three.state_of(two) == "left")
        assert later.result().json()["response"] == "First."  # in another process the script begins anew
        until(lambda: stream.names().count("execution:done") == 2)

    assert two.api.get("/cluster").json()["member_id"] == two.member_id
    elsewhere = members.session(two, "Elsewhere.")
    assert two.api.post(f"/sessions/{elsewhere}/execute", json={"prompt": "d"}).json()["response"] == "Elsewhere."
    assert three.holds_of(two) == 0
    numbers = stream.numbers(session_id)
    assert numbers == [*range(numbers[0], numbers[0] + len(numbers))]


def test_a_member_that_stops_says_so_while_it_ends_its_turns(members: Members) -> None:
    _, two, three = members
    session_id = members.session(three, WAITS)

    with watching(three.api, f"/sessions/{session_id}/stream") as stream:
        three.api.post(f"/sessions/{session_id}/execute/stream", json={"prompt": "a"}).raise_for_status()
        until(lambda: "tool:pre" in stream.names())
        os.kill(three.process.pid, signal.SIGTERM)
        until(lambda: two.state_of(three) == "draining")  # it takes over nothing, and gets no turns
        (members.folders[session_id] / "go").touch()
        until(lambda: two.state_of(three) == "left")
