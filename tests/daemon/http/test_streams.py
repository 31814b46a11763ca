"""Streams of events over HTTP: nothing is lost or told twice, and no one who watches holds up a turn."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from real_server import PATIENCE_S, RealServer, plan, read_events, real_server

from amplifierd.store.cursor import Cursor

TALKATIVE = "word " * 400
WORDY = f"{'w' * 4000} " * 200


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    stream = {"keepalive_seconds": 0.2, "ring_events": 300, "queue_events": 300}
    with real_server(tmp_path_factory.mktemp("home"), stream=stream) as served:
        yield served


@pytest.fixture
def admin(server: RealServer) -> httpx2.Client:
    return server.client()


def create(client: httpx2.Client, work: Path, *script: Any, **mock: Any) -> str:
    answer = client.post("/sessions", json={"mount_plan": plan(*script, **mock), "working_dir": str(work)})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["session_id"])


def run(client: httpx2.Client, session_id: str) -> None:
    answer = client.post(f"/sessions/{session_id}/execute", json={"prompt": "Go on.", "queue": True})
    assert answer.status_code == 200, answer.text


async def test_a_client_that_reconnects_a_hundred_times_sees_each_event_once(
    server: RealServer, admin: httpx2.Client, tmp_path: Path
) -> None:
    session_id = create(admin, tmp_path, *[TALKATIVE] * 10, stream_delay_ms=1)
    seen: list[int] = []
    loop = asyncio.get_running_loop()
    turns = loop.run_in_executor(None, lambda: [run(admin, session_id) for _ in range(10)])
    headers = {"Authorization": f"Bearer {server.token}"}
    last_id = "0"
    async with httpx2.AsyncClient(base_url=f"{server.url}/api/v1", headers=headers, timeout=PATIENCE_S) as client:
        for attempt in range(100):
            last_id = await _read_some(client, session_id, last_id, seen, stop_after=7 + attempt % 40)
        await turns
        stored = admin.get(f"/sessions/{session_id}/events", params={"limit": 1000}).json()["events"]
        while not seen or seen[-1] < stored[-1]["seq"]:
            last_id = await _read_some(client, session_id, last_id, seen, stop_after=100)

    assert seen == [event["seq"] for event in stored]


@pytest.mark.parametrize(
    ("method", "path", "first"),
    [("GET", "stream", "stream:connected"), ("POST", "execute", "user_message:saved")],
    ids=["watching", "executing"],
)
def test_a_stream_ends_with_the_token_that_opened_it(
    server: RealServer, admin: httpx2.Client, tmp_path: Path, method: str, path: str, first: str
) -> None:
    session_id = create(admin, tmp_path, {"text": "Late.", "latency_ms": 60_000})
    secret = admin.post("/tokens", json={"name": "watcher", "scope": "admin"}).json()["token"]
    headers = {"Authorization": f"Bearer {secret}", "Accept": "text/event-stream"}
    body = {"json": {"prompt": "Go on."}} if method == "POST" else {}
    with (
        httpx2.Client(base_url=f"{server.url}/api/v1", timeout=PATIENCE_S) as watcher,
        watcher.stream(method, f"/sessions/{session_id}/{path}", headers=headers, **body) as response,
    ):
        events = read_events(response)
        assert next(events).event == first

        admin.delete("/tokens/watcher")

        assert "execution:done" not in [event.event for event in events]
    assert admin.post(f"/sessions/{session_id}/cancel", json={"immediate": True}).status_code == 200


def test_a_turn_whose_events_are_its_answer_tells_gaps_too(
    server: RealServer, admin: httpx2.Client, tmp_path: Path
) -> None:
    session_id = create(admin, tmp_path, {"text": "Late.", "latency_ms": 60_000})
    asked = {"json": {"prompt": "Go on."}, "headers": {"Accept": "text/event-stream"}}
    with admin.stream("POST", f"/sessions/{session_id}/execute", **asked) as response:
        events = read_events(response)
        assert next(events).event == "user_message:saved"

        hub, gap = server.daemon.events, {"requested": None, "resumed_at": 7, "reason": "begun-anew"}
        server.loop.call_soon_threadsafe(lambda: hub.tell("stream:gap", gap, session_id=session_id))

        assert next(event for event in events if event.event == "stream:gap").data["data"] == gap
        assert admin.post(f"/sessions/{session_id}/cancel", json={"immediate": True}).status_code == 200
        assert [event.event for event in events][-1] == "execution:done"


def test_a_stream_ends_with_the_login_that_opened_it(server: RealServer, admin: httpx2.Client) -> None:
    page = {"X-Amplifier-Page": "1", "Origin": server.url}
    with httpx2.Client(base_url=server.url, timeout=PATIENCE_S) as browser:
        browser.post("/auth/login", json={"token": server.token}, headers=page).raise_for_status()
        with browser.stream("GET", "/api/v1/events") as response:
            events = read_events(response)
            assert next(events).event == "stream:connected"

            assert browser.post("/auth/logout", headers=page).status_code == 204

            assert [event.event for event in events] == []


async def _read_some(
    client: httpx2.AsyncClient, session_id: str, last_id: str, seen: list[int], *, stop_after: int
) -> str:
    """Read some events and break the connection; returns the last id that came."""
    count = 0
    async with client.stream("GET", f"/sessions/{session_id}/stream", headers={"Last-Event-ID": last_id}) as response:
        name = number = ""
        async for line in response.aiter_lines():
            if line.startswith("id: "):
                number = line[4:]
            elif line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: ") and number:
                last_id, count = number, count + 1
                place = Cursor.parse(number)
                assert place is not None
                assert bool(place.piece) == name.endswith(("_delta", ":delta"))
                if not place.piece:
                    seen.append(place.seq)
                number = ""
            if count >= stop_after or line.startswith(": keepalive"):
                break
    return last_id


def _read_until(connection: socket.socket, text: bytes) -> None:
    received = b""
    while text not in received:
        received += connection.recv(256)


async def test_a_client_that_reads_nothing_never_slows_a_turn(
    server: RealServer, admin: httpx2.Client, tmp_path: Path
) -> None:
    session_id = create(admin, tmp_path, *[WORDY] * 6)
    host, port = server.url.removeprefix("http://").split(":")
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((host, int(port)))
        head = f"GET /api/v1/sessions/{session_id}/stream HTTP/1.1\r\nHost: {host}:{port}\r\n"
        slow.sendall(f"{head}Authorization: Bearer {server.token}\r\n\r\n".encode())
        await asyncio.to_thread(_read_until, slow, b"stream:connected")

        for _ in range(6):
            await asyncio.to_thread(run, admin, session_id)

    assert admin.get(f"/sessions/{session_id}").json()["turn_count"] == 6
    for _ in range(600):
        if not server.daemon.events.subscribers:
            break
        await asyncio.sleep(0.05)
    assert (server.daemon.events.subscribers, server.daemon.events.dropped > 0) == (0, True)


def test_who_watches_misses_nothing_when_a_worker_is_killed(
    server: RealServer, admin: httpx2.Client, tmp_path: Path
) -> None:
    session_id = create(admin, tmp_path, {"text": "Late.", "latency_ms": 3000}, "Here again.")
    submitted = admin.post(f"/sessions/{session_id}/execute/stream", json={"prompt": "Go on."}).json()
    seen: list[int] = []
    with admin.stream("GET", f"/sessions/{session_id}/stream?after=0") as response:
        for event in read_events(response):
            if event.data["sequence"] is not None:
                seen.append(event.data["sequence"])
            if event.event == "provider:request" and event.data["correlation_id"] == submitted["correlation_id"]:
                state = server.daemon.live.state(session_id)
                (worker,) = [one for one in server.daemon.live.workers() if one.worker_id == state.worker_id]
                os.kill(worker.pid, signal.SIGKILL)
            if event.event == "execution:done":
                break
    assert event.data["data"]["status"] == "failed"
    run(admin, session_id)
    with admin.stream("GET", f"/sessions/{session_id}/stream", headers={"Last-Event-ID": str(seen[-1])}) as response:
        for event in read_events(response):
            if event.data["sequence"] is not None:
                seen.append(event.data["sequence"])
            if event.event == "execution:done":
                break
    stored = [one["seq"] for one in admin.get(f"/sessions/{session_id}/events").json()["events"]]
    assert seen == [number for number in stored if number <= seen[-1]]


def test_a_silent_stream_shows_that_it_is_alive(admin: httpx2.Client, tmp_path: Path) -> None:
    session_id = create(admin, tmp_path)
    with admin.stream("GET", f"/sessions/{session_id}/stream") as response:
        lines = response.iter_lines()
        assert next(lines) == "retry: 2000"
        assert ": keepalive" in lines


def test_a_client_learns_what_the_session_does(admin: httpx2.Client, tmp_path: Path) -> None:
    session_id = create(admin, tmp_path, "Done.")
    run(admin, session_id)
    with admin.stream("GET", f"/sessions/{session_id}/stream", params={"replay": 2}) as response:
        events = read_events(response)
        connected, *recent = [next(events) for _ in range(3)]

    told = connected.data["data"]
    assert connected.event == "stream:connected"
    assert Cursor.parse(connected.id or "") == Cursor.of_event(recent[-1].data)
    assert (told["session_id"], told["activity"], told["pending_approvals"]) == (session_id, "idle", [])
    assert [event.data["sequence"] for event in recent] == [told["sequence"] - 1, told["sequence"]]


def test_only_what_is_asked_for_is_sent(admin: httpx2.Client, tmp_path: Path) -> None:
    session_id = create(admin, tmp_path, "Done.")
    run(admin, session_id)
    chosen = {"after": "0", "filter": "user_message:*", "preset": "minimal"}
    names = []
    with admin.stream("GET", f"/sessions/{session_id}/stream", params=chosen) as response:
        for event in read_events(response):
            names.append(event.event)
            if event.event == "execution:done":
                break

    assert "user_message:saved" in names
    assert all(name.startswith(("user_message:", "session:", "approval:", "execution:")) for name in names)


def test_the_stream_of_everything_goes_on_after_its_own_ids(admin: httpx2.Client, tmp_path: Path) -> None:
    session_id = create(admin, tmp_path, "One.", "Two.")
    last = None
    with admin.stream("GET", "/events", params={"session": session_id}) as response:
        events = read_events(response)
        boot = next(events).data["data"]["sequence"].rpartition("-")[0]
        run(admin, session_id)
        for event in events:
            last = event.id
            if event.event == "user_message:saved":
                break
    assert str(last).startswith(f"{boot}-")
    with admin.stream("GET", "/events", params={"filter": "execution:done"}, headers={"Last-Event-ID": str(last)}) as r:
        assert next(read_events(r)).data["session_id"] == session_id
    with admin.stream("GET", "/events", headers={"Last-Event-ID": "earlier-7"}) as response:
        gap = next(read_events(response))
    assert (gap.event, gap.data["data"]["reason"]) == ("stream:gap", "other-boot")


def test_everyone_watches_their_own(server: RealServer, admin: httpx2.Client, tmp_path: Path) -> None:
    ann = server.client("run", "ann")
    with ann.stream("GET", "/events", params={"filter": "session:created"}) as response:
        events = read_events(response)
        assert next(events).event == "stream:connected"
        create(admin, tmp_path)
        own = create(ann, tmp_path)
        assert next(events).data["session_id"] == own


def test_asking_for_the_id_of_another_owner_shows_none_of_its_events(
    server: RealServer, admin: httpx2.Client, tmp_path: Path
) -> None:
    eve = server.client("run", "eve")
    session_id = create(admin, tmp_path, "Secret.")
    with eve.stream("GET", "/events", params={"filter": "session:created,execution:done"}) as response:
        events = read_events(response)
        assert next(events).event == "stream:connected"
        taken = eve.post(
            "/sessions", json={"mount_plan": plan(), "working_dir": str(tmp_path), "session_id": session_id}
        )
        assert taken.status_code == 409
        run(admin, session_id)
        own = create(eve, tmp_path)
        assert next(events).data["session_id"] == own


@pytest.mark.parametrize("query", ["preset=everything", "replay=-1", "replay=many"])
def test_a_stream_that_cannot_be_is_refused_before_it_begins(admin: httpx2.Client, tmp_path: Path, query: str) -> None:
    answer = admin.get(f"/sessions/{create(admin, tmp_path)}/stream?{query}")
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert admin.get(f"/events?{query}").status_code == 422
    assert admin.get("/events", params={"session": "none"}).status_code == 404


async def test_a_thousand_changes_at_once_lose_nothing(
    server: RealServer, admin: httpx2.Client, tmp_path: Path
) -> None:
    session_id = create(admin, tmp_path)
    assert admin.post(f"/sessions/{session_id}/resume").status_code == 200
    headers = {"Authorization": f"Bearer {server.token}"}
    limits = httpx2.Limits(max_connections=40)
    async with httpx2.AsyncClient(
        base_url=f"{server.url}/api/v1/sessions/{session_id}", headers=headers, timeout=600, limits=limits
    ) as client:
        changes = [client.patch("", json={"metadata": {f"key{number}": number}}) for number in range(500)]
        messages = [client.post("/messages", json={"content": f"message {number}"}) for number in range(500)]
        answers = await asyncio.gather(*changes, *messages)

    assert {answer.status_code for answer in answers} <= {200, 201}
    assert admin.get(f"/sessions/{session_id}").json()["metadata"] == {f"key{number}": number for number in range(500)}
    said = admin.get(f"/sessions/{session_id}/messages", params={"limit": 1000}).json()["messages"]
    assert {message["content"] for message in said} == {f"message {number}" for number in range(500)}
