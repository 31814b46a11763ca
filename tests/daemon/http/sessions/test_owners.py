"""What callers see of each other's sessions."""

from __future__ import annotations

from pathlib import Path

import httpx2
from real_server import RealServer
from session_requests import create, execute


def test_a_caller_sees_and_runs_their_own_sessions(server: RealServer, admin: httpx2.Client, work: Path) -> None:
    ann, ben = server.client("run", "ann"), server.client("run", "ben")
    session_id = create(ann, work, "For Ann.")

    assert execute(ann, session_id).json()["response"] == "For Ann."
    assert server.client("read", "ann").get(f"/sessions/{session_id}").json()["owner"] == "ann"
    assert [one["session_id"] for one in ann.get("/sessions").json()["sessions"]] == [session_id]
    assert ben.get("/sessions").json()["total"] == 0
    assert ben.get("/sessions/search", params={"q": "Ann"}).json()["hits"] == []
    assert admin.get(f"/sessions/{session_id}").status_code == 200
