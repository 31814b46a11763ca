"""A remote that takes its time holds up what has to be fetched from it, and nothing else."""

from __future__ import annotations

import time
from pathlib import Path

import httpx2
import pytest
from conversation import Conversation
from git_repository import Repository, use_plain_git
from git_server import git_server
from hurt_daemon import PATIENCE_S, HurtDaemon, until

HEALTH_S = 0.1
PROFILE = """---
profile: {name: base, version: 1.0.0, schema_version: 2, extends: foundation/offline}
---

Be brief.
"""


def test_while_a_clone_hangs_the_daemon_is_healthy_and_other_sessions_stream(
    daemon: HurtDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_plain_git(monkeypatch)
    conversation = Conversation.begin(daemon, "beside a clone")
    origin = Repository(tmp_path / "origin")
    origin.commit({"profiles/base.md": PROFILE})
    client = daemon.client()
    with git_server(origin, "me", "secret") as remote:
        remote.answers.clear()
        asked = {"identifier": "slow", "source": f"git+http://me:secret@{remote.host}/origin/.git@main"}
        cloning = client.post("/collections", params={"wait": False}, json=asked)
        assert cloning.status_code == 202, cloning.text
        assert remote.was_asked.wait(PATIENCE_S)

        fastest = min(seconds_of_health(daemon, client) for _ in range(10))
        path, streamed = f"/sessions/{conversation.session_id}/execute", {"Accept": "text/event-stream"}
        events = client.post(path, json={"prompt": "Go on."}, headers=streamed).text
        operation = f"/operations/{cloning.json()['operation_id']}"
        meanwhile = client.get(operation).json()["status"]
        remote.answers.set()
        until(lambda: client.get(operation).json()["status"] not in ("pending", "running"))

    assert fastest < HEALTH_S
    assert events.index("event: content_block:") < events.index("event: execution:done")
    assert meanwhile == "running"
    assert client.get(operation).json()["status"] == "succeeded"
    assert client.get("/collections/slow").json()["profile_count"] == 1


def seconds_of_health(daemon: HurtDaemon, client: httpx2.Client) -> float:
    begun = time.perf_counter()
    assert client.get(f"{daemon.url}/health").json()["status"] == "healthy"
    return time.perf_counter() - begun
