"""Deleted sessions over HTTP: listed, brought back, and removed for good, each by whom they belong to."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

sys.path.append(str(Path(__file__).parent))

from real_server import RealServer, plan, read_events, real_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with real_server(tmp_path_factory.mktemp("home")) as served:
        yield served


def create(client: httpx2.Client, **more: Any) -> str:
    answer = client.post("/sessions", json={"mount_plan": plan("Milk.", "Bread."), "working_dir": "/tmp", **more})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["session_id"])


def trash(client: httpx2.Client) -> list[str]:
    return [one["session_id"] for one in client.get("/sessions/trash").json()["sessions"]]


def code(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_a_session_with_a_worker_is_deleted_and_comes_back(server: RealServer) -> None:
    ann = server.client("run", "ann")
    session_id = create(ann)
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


def test_a_deleted_session_can_be_removed_for_good(server: RealServer) -> None:
    admin = server.client()
    kept, gone = create(admin), create(admin)
    for session_id in (kept, gone):
        assert admin.delete(f"/sessions/{session_id}").status_code == 204

    assert admin.delete(f"/sessions/trash/{gone}").status_code == 204

    assert trash(admin) == [kept]
    assert code(admin.delete(f"/sessions/trash/{gone}")) == (404, "session-not-found")
    assert code(admin.post(f"/sessions/trash/{gone}/restore")) == (404, "session-not-found")
    at_once = create(admin)
    assert admin.delete(f"/sessions/{at_once}", params={"forever": True}).status_code == 204
    assert trash(admin) == [kept]


def test_an_id_that_is_in_use_again_is_a_conflict(server: RealServer) -> None:
    admin = server.client()
    session_id = create(admin)
    admin.delete(f"/sessions/{session_id}")
    create(admin, session_id=session_id)

    assert code(admin.post(f"/sessions/trash/{session_id}/restore")) == (409, "session-already-exists")


def test_the_trash_of_another_owner_is_not_there(server: RealServer) -> None:
    ann, eve, reader = server.client("run", "ann"), server.client("run", "eve"), server.client("read", "ann")
    session_id = create(ann)
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
