"""A disk that takes nothing, and a home that nobody may change: problems are told, and nothing stored is lost."""

from __future__ import annotations

import httpx2
from conversation import Conversation
from hurt_daemon import HurtDaemon


def test_a_full_disk_fails_what_writes_until_there_is_room(daemon: HurtDaemon) -> None:
    conversation = Conversation.begin(daemon, "full")
    client = daemon.client()

    with daemon.full_disk():
        assert httpx2.get(f"{daemon.url}/health").status_code == 200
        assert client.get(f"/sessions/{conversation.session_id}/messages").json()["total"] == 2
        refused = [
            conversation.run("too much"),
            client.patch(f"/sessions/{conversation.session_id}", json={"name": "too long"}),
            client.post(
                "/sessions", json={"profile_name": "foundation/offline", "working_dir": str(conversation.folder)}
            ),
            client.post("/tokens", json={"name": "too-many"}),
        ]
        assert all(answer.status_code >= 400 for answer in refused), [answer.text for answer in refused]
        assert all(answer.headers["content-type"] == "application/problem+json" for answer in refused)

    assert client.get(f"/sessions/{conversation.session_id}").json()["name"] is None
    conversation.check()


def test_a_home_that_nobody_may_change_is_read(daemon: HurtDaemon) -> None:
    conversation = Conversation.begin(daemon, "read-only")
    client = daemon.client()
    body = {"profile_name": "foundation/offline", "working_dir": str(conversation.folder)}

    with daemon.read_only_home():
        assert httpx2.get(f"{daemon.url}/health").status_code == 200
        assert client.get(f"/sessions/{conversation.session_id}/messages").json()["total"] == 2
        assert client.get("/sessions").json()["total"] >= 1
        refused = [
            client.patch(f"/sessions/{conversation.session_id}", json={"name": "too late"}),
            client.post("/sessions", json=body),
            client.patch("/settings", json={"offline": False}),
        ]
        assert all(answer.status_code >= 400 for answer in refused), [answer.text for answer in refused]
        assert all(answer.headers["content-type"] == "application/problem+json" for answer in refused)

    assert client.post("/sessions", json=body).status_code == 201
    conversation.check()
