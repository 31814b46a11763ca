"""Deleted sessions over HTTP: listed, brought back, and removed for good, each by whom they belong to."""

from __future__ import annotations

from pathlib import Path

import httpx2
from real_server import RealServer, read_events
from session_requests import code, create


def trash(client: httpx2.Client) -> list[str]:
    return [one["session_id"] for one in client.get("/sessions/trash").json()["sessions"]]


def test_a_session_with_a_worker_is_deleted_and_comes_back(server: RealServer, work: Path) -> None:
    ann = server.client("run", "carl")
    session_id = create(ann, work, "Milk.", "Bread.")
    assert ann.post(f"/sessions/{session_id}/execute", json={"prompt": "Hello"}).status_code == 200

    with ann.stream("GET", "/events", params={"filter": "session:deleted,session:restored"}) as stream:
        told = read_events(stream)
        assert next(told).event == "stream:connected"
        assert ann.delete(f"/sessions/{session_id}").status_code == 204
        assert (next(told).event, code(ann.get(f"/sessions/{session_id}"))) == (
            "session:deleted",
            (404, "session-not-found"),
        )
        page = ann.get("/sessions/trash").json()
        back = ann.post(f"/sessions/trash/{session_id}/restore")
        assert back.status_code == 200, back.text
        restored = next(told)

    (deleted,) = page["sessions"]
    assert (page["total"], deleted["session_id"], deleted["turn_count"]) == (1, session_id, 1)
    assert deleted["deleted_at"][:10] < deleted["expires_at"][:10]
    assert (back.json()["session_id"], trash(ann)) == (session_id, [])
    assert (restored.event, restored.data["data"]["session_id"]) == ("session:restored", session_id)
    again = ann.post(f"/sessions/{session_id}/execute", json={"prompt": "And?"})
    assert (again.status_code, again.json()["turn"]) == (200, 2)


def test_a_deleted_session_can_be_removed_for_good(server: RealServer, work: Path) -> None:
    admin = server.client()
    kept, gone = create(admin, work), create(admin, work)
    for session_id in (kept, gone):
        assert admin.delete(f"/sessions/{session_id}").status_code == 204

    assert admin.delete(f"/sessions/trash/{gone}").status_code == 204

    assert (kept in trash(admin), gone in trash(admin)) == (True, False)
    assert code(admin.delete(f"/sessions/trash/{gone}")) == (404, "session-not-found")
    assert code(admin.post(f"/sessions/trash/{gone}/restore")) == (404, "session-not-found")
    at_once = create(admin, work)
    assert admin.delete(f"/sessions/{at_once}", params={"forever": True}).status_code == 204
    assert at_once not in trash(admin)


def test_an_id_that_is_in_use_again_is_a_conflict(server: RealServer, work: Path) -> None:
    admin = server.client()
    session_id = create(admin, work)
    admin.delete(f"/sessions/{session_id}")
    create(admin, work, session_id=session_id)

    assert code(admin.post(f"/sessions/trash/{session_id}/restore")) == (409, "session-already-exists")


def test_the_trash_of_another_owner_is_not_there(server: RealServer, work: Path) -> None:
    ann, eve, reader = (server.client(*who) for who in (("run", "bob"), ("run", "eve"), ("read", "bob")))
    session_id = create(ann, work, "Milk.", "Bread.")
    ann.delete(f"/sessions/{session_id}")

    assert session_id in trash(ann)
    assert session_id in trash(reader)
    assert session_id not in trash(eve)
    assert code(eve.post(f"/sessions/trash/{session_id}/restore")) == (404, "session-not-found")
    assert code(eve.delete(f"/sessions/trash/{session_id}")) == (404, "session-not-found")
    assert reader.post(f"/sessions/trash/{session_id}/restore").status_code == 403
    assert server.stranger().get("/sessions/trash").status_code == 401
    assert code(ann.post("/sessions/trash/.hidden/restore"))[0] == 400
    assert ann.get("/sessions/trash", params={"limit": 0}).status_code == 422
