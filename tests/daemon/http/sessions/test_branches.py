"""Forks, clones and replays of a session over HTTP, and one that travels as a file."""

from __future__ import annotations

import base64

import httpx2
from real_server import RealServer
from session_requests import code


def test_a_conversation_is_forked_cloned_and_cut(admin: httpx2.Client, spoken: str) -> None:
    preview = admin.get(f"/sessions/{spoken}/fork/preview", params={"turn": 1}).json()
    assert (preview["max_turns"], preview["message_count"]) == (2, 2)
    assert code(admin.post(f"/sessions/{spoken}/fork", json={"turn": 9})) == (422, "validation-error")

    forked = admin.post(f"/sessions/{spoken}/fork", json={"turn": 1}).json()

    assert (forked["parent_session_id"], forked["forked_from_turn"], forked["message_count"]) == (spoken, 1, 2)
    lineage = admin.get(f"/sessions/{forked['session_id']}/lineage").json()["ancestors"]
    assert [one["session_id"] for one in lineage] == [spoken]
    forks = admin.get(f"/sessions/{spoken}/forks").json()["sessions"]
    assert forked["session_id"] in {one["session_id"] for one in forks}
    cloned = admin.post(f"/sessions/{spoken}/clone", json={}).json()
    assert cloned["name"].endswith("(copy)")
    assert admin.get(f"/sessions/{spoken}/turns").json()["turns"][1]["user_preview"] == "And then?"
    assert admin.post(f"/sessions/{cloned['session_id']}/truncate", json={"turn": 1}).json()["turn_count"] == 1
    assert admin.get(f"/sessions/{spoken}/tree").json()["children"] == []


def test_what_needs_no_word_needs_no_body(admin: httpx2.Client, spoken: str) -> None:
    created, forked, cloned = (
        admin.post(path) for path in ("/sessions", f"/sessions/{spoken}/fork", f"/sessions/{spoken}/clone")
    )
    assert [answer.status_code for answer in (created, forked, cloned)] == [201, 201, 201]
    assert admin.post(f"/sessions/{spoken}/cancel").json() == {"state": "none", "running_tools": []}
    assert admin.post("/sessions/cleanup").json() == {"removed_count": 0, "removed": []}
    for session_id in (answer.json()["session_id"] for answer in (created, forked, cloned)):
        admin.delete(f"/sessions/{session_id}")


def test_a_record_is_run_again(admin: httpx2.Client, spoken: str) -> None:
    assert admin.post(f"/sessions/{spoken}/replay", json={}).status_code == 200
    other = admin.post(f"/sessions/{spoken}/replay", json={"profile_name": "local/nowhere"})
    assert code(other) == (404, "profile-not-found")


def test_a_session_travels_as_one_file(server: RealServer, admin: httpx2.Client, spoken: str) -> None:
    exported = admin.get(f"/sessions/{spoken}/export")
    data = {"data": base64.b64encode(exported.content).decode()}

    imported = admin.post("/sessions/import", json=data)

    assert imported.status_code == 201, imported.text
    assert imported.json()["session"]["message_count"] == 4
    broken = base64.b64encode(exported.content[:-40]).decode()
    assert code(admin.post("/sessions/import", json={"data": broken})) == (422, "validation-error")
    assert code(server.client("run", "ann").post("/sessions/import", json=data)) == (403, "forbidden")
