"""Sessions of bundles, of other applications and of agents, over HTTP and in workers."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
import pytest
import yaml
from real_server import plan, read_events, real_server
from session_requests import code, create, execute, submit, watch_until

from amplifier_foundation.session import write_jsonl, write_metadata

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
DELEGATE = {"tool_calls": [{"name": "task", "arguments": {"agent": "helper", "instruction": "Help me"}}]}


def test_images_come_with_the_prompt(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, "A pixel.")

    assert execute(admin, session_id, "What is it?", images=[IMAGE]).json()["response"] == "A pixel."

    messages = admin.get(f"/sessions/{session_id}/messages").json()["messages"]
    assert PIXEL in json.dumps([one["content"] for one in messages if one["role"] == "user"])
    request = admin.get(f"/sessions/{session_id}/requests").json()["requests"][0]
    assert PIXEL in admin.get(f"/sessions/{session_id}/requests/{request['request_id']}").text


def test_a_bundle_runs_in_a_worker(admin: httpx2.Client, work: Path, tmp_path: Path) -> None:
    front = {"bundle": {"name": "small", "version": "1.0.0"}, **plan("From the bundle.")}
    file = tmp_path / "bundle.md"
    file.write_text(f"---\n{yaml.safe_dump(front)}---\n\nBe kind.\n")

    created = admin.post("/sessions", json={"bundle_uri": str(file), "working_dir": str(work)})

    assert created.status_code == 201, created.text
    session_id = created.json()["session_id"]
    assert created.json()["bundle"]
    assert execute(admin, session_id).json()["response"] == "From the bundle."
    unknown = admin.post("/sessions", json={"bundle_name": "unknown", "working_dir": str(work)})
    assert code(unknown) == (404, "bundle-not-found")


def test_who_watches_a_session_sees_its_agents(admin: httpx2.Client, work: Path) -> None:
    helper = {"description": "Helps", "instruction": "You help.", "providers": plan("Helped.")["providers"]}
    mount_plan = {**plan(DELEGATE, "Done."), "tools": [{"module": "tool-task"}], "agents": {"helper": helper}}
    session_id = create(admin, work, mount_plan=mount_plan)

    events = []
    with admin.stream("GET", submit(admin, session_id)["events_url"].removeprefix("/api/v1")) as response:
        for event in read_events(response):
            events.append(event)
            if event.event == "execution:done" and event.data["session_id"] == session_id:
                break

    numbers = [number for event in events if (number := event.data["sequence"]) is not None]
    assert numbers == [*range(numbers[0], numbers[0] + len(numbers))]
    children = {event.data["session_id"] for event in events if event.id} - {session_id}
    (child,) = children
    of_child = [event.data for event in events if event.data["session_id"] == child]
    assert {one["root_session_id"] for one in of_child} == {session_id}
    assert {one["correlation_id"] for one in of_child} == {f"prompt_{session_id}_1"}
    assert [one["session_id"] for one in admin.get(f"/sessions/{session_id}/tree").json()["children"]] == [child]
    below = {"after": "0", "children": "false", "filter": "execution:done"}
    with admin.stream("GET", f"/sessions/{child}/stream", params=below) as response:
        assert response.status_code == 200


def test_a_switch_of_profiles_can_cancel_the_running_turn(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, {"text": "Late.", "latency_ms": 60_000})
    watch_until(admin, submit(admin, session_id)["events_url"], "provider:request")
    body = {"profile_name": "foundation/offline", "cancel": True}

    switched = admin.post(f"/sessions/{session_id}/change-profile", json=body)

    assert (switched.status_code, switched.json()["profile_name"]) == (200, "foundation/offline")
    done = watch_until(admin, f"/sessions/{session_id}/stream?after=0", "execution:done")[-1]
    assert done.data["data"]["status"] == "cancelled"
    assert execute(admin, session_id).status_code == 200


@pytest.fixture
def with_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory in which another application has kept a session."""
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "theirs"))
    directory = tmp_path / "theirs/projects/-work-shop/sessions/theirs"
    directory.mkdir(parents=True)
    about = {
        "session_id": "theirs",
        "created": "2026-01-02T03:04:05+00:00",
        "name": "Shop",
        "working_dir": str(tmp_path),
    }
    write_metadata(directory, about)
    write_jsonl(
        directory / "transcript.jsonl",
        [{"role": "user", "content": "Buy milk"}, {"role": "assistant", "content": "Bought."}],
    )
    return directory


def test_a_session_of_another_application_is_shown_and_adopted(with_others: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in with_others.iterdir()}
    with real_server(tmp_path / "home", default_profile="foundation/offline") as server:
        admin = server.client()
        shown = admin.get("/sessions/theirs").json()
        assert (shown["origin"], shown["name"]) == ("amplifier", "Shop")
        assert "theirs" in {one["session_id"] for one in admin.get("/sessions").json()["sessions"]}
        assert admin.get("/sessions/theirs/messages").json()["total"] == 2
        assert server.client("run", "ann").get("/sessions/theirs").status_code == 404
        answer = execute(admin, "theirs", "And bread")
        assert answer.status_code == 200, answer.text
        adopted = admin.get("/sessions/theirs").json()
        assert (adopted["origin"], adopted["imported_from"]) == (None, str(with_others))
        prompts = [one["content"] for one in admin.get("/sessions/theirs/messages").json()["messages"]]
        assert prompts[:3] == ["Buy milk", "Bought.", "And bread"]
    assert {path.name: path.read_bytes() for path in with_others.iterdir()} == before


def test_a_session_of_another_application_is_only_read(with_others: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in with_others.iterdir()}
    with real_server(tmp_path / "home", default_profile="foundation/offline") as server:
        admin = server.client()
        answers = [
            admin.patch("/sessions/theirs", json={"name": "Mine"}),
            admin.patch("/sessions/theirs", json={"status": "completed"}),
            admin.post("/sessions/theirs/messages", json={"content": "Buy bread"}),
            admin.delete("/sessions/theirs/messages/last"),
            admin.delete("/sessions/theirs", params={"force": True}),
        ]
        assert [code(answer) for answer in answers] == [(409, "session-state-conflict")] * 5
        assert admin.get("/sessions/theirs").json()["origin"] == "amplifier"
    assert {path.name: path.read_bytes() for path in with_others.iterdir()} == before
