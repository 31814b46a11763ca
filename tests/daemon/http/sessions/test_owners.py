"""Whom the endpoints of a session refuse, and what callers see of each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
from real_server import RealServer
from session_requests import code, create, execute

ENDPOINTS: list[tuple[str, str, Any]] = [
    ("GET", "", None),
    ("PATCH", "", {"name": "x"}),
    ("DELETE", "", None),
    ("POST", "/start", None),
    ("POST", "/resume", None),
    ("POST", "/change-profile", {"profile_name": "foundation/offline"}),
    ("POST", "/clone", {}),
    ("POST", "/fork", {}),
    ("GET", "/fork/preview", None),
    ("GET", "/turns", None),
    ("GET", "/lineage", None),
    ("GET", "/forks", None),
    ("GET", "/tree", None),
    ("GET", "/mount-plan", None),
    ("GET", "/config", None),
    ("GET", "/modules", None),
    ("GET", "/tools", None),
    ("GET", "/hooks", None),
    ("GET", "/capabilities", None),
    ("GET", "/agents", None),
    ("GET", "/requests", None),
    ("GET", "/requests/one", None),
    ("POST", "/execute", {"prompt": "x"}),
    ("POST", "/execute/stream", {"prompt": "x"}),
    ("POST", "/steer", {"content": "x"}),
    ("GET", "/queue", None),
    ("DELETE", "/queue/1", None),
    ("POST", "/messages", {"content": "x"}),
    ("GET", "/messages", None),
    ("GET", "/transcript", None),
    ("DELETE", "/messages/last", None),
    ("POST", "/truncate", {"turn": 0}),
    ("POST", "/cancel", {}),
    ("GET", "/cancel", None),
    ("GET", "/approvals", None),
    ("POST", "/approvals/one", {"decision": "allow"}),
    ("GET", "/events", None),
    ("GET", "/stream", None),
    ("GET", "/changes?turn=1", None),
    ("POST", "/undo", {"turn": 1}),
    ("POST", "/replay", {}),
    ("GET", "/export", None),
]


@pytest.mark.parametrize(("method", "path", "body"), ENDPOINTS)
def test_every_endpoint_of_a_session_refuses_strangers_and_unknown_ids(
    server: RealServer, admin: httpx2.Client, spoken: str, method: str, path: str, body: Any
) -> None:
    of_ann, reader = server.client("run", "ann"), server.client("read", "ann")
    given = {} if body is None else {"json": body}

    assert code(server.stranger().request(method, f"/sessions/{spoken}{path}", **given)) == (401, "unauthorized")
    assert code(admin.request(method, f"/sessions/none{path}", **given)) == (404, "session-not-found")
    assert code(of_ann.request(method, f"/sessions/{spoken}{path}", **given)) == (404, "session-not-found")
    assert admin.request(method, f"/sessions/..%2Fetc{path}", **given).status_code in (400, 404)
    if body:
        unknown = {"json": {**body, "surprise": 1}}
        assert code(admin.request(method, f"/sessions/{spoken}{path}", **unknown)) == (422, "extra-field")
    if method != "GET":
        assert code(reader.request(method, f"/sessions/{spoken}{path}", **given)) == (403, "forbidden")


def test_a_caller_sees_and_runs_their_own_sessions(server: RealServer, admin: httpx2.Client, work: Path) -> None:
    ann, ben = server.client("run", "ann"), server.client("run", "ben")
    session_id = create(ann, work, "For Ann.")

    assert execute(ann, session_id).json()["response"] == "For Ann."
    assert server.client("read", "ann").get(f"/sessions/{session_id}").json()["owner"] == "ann"
    assert [one["session_id"] for one in ann.get("/sessions").json()["sessions"]] == [session_id]
    assert ben.get("/sessions").json()["total"] == 0
    assert ben.get("/sessions/search", params={"q": "Ann"}).json()["hits"] == []
    assert admin.get(f"/sessions/{session_id}").status_code == 200
