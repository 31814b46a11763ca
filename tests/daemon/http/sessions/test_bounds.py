"""What a turn, a queue and those who watch are bounded by, over HTTP."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from real_server import RealServer, plan, real_server
from session_requests import SLOW, WRITE, code, create, execute, submit, watch_until

from amplifierd.server.events.subscriber import StreamLimits


def test_a_turn_that_takes_too_long_is_ended(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, SLOW, "Here.")

    late = execute(admin, session_id, timeout_seconds=0.3)
    assert (code(late), "took longer than it may" in late.json()["detail"]) == ((504, "execution-timeout"), True)
    done = admin.get(f"/sessions/{session_id}/events", params={"event_type": "execution:done"}).json()["events"]
    assert [one["data"]["status"] for one in done] == ["failed"]
    assert done[0]["data"]["error"] == admin.get(f"/sessions/{session_id}").json()["last_error"]
    assert done[0]["data"]["error"]["code"] == "execution-timeout"
    assert execute(admin, session_id).json()["response"] == "Here."
    assert execute(admin, session_id, timeout_seconds=0).status_code == 422


def test_who_waits_for_a_prompt_that_is_taken_out_of_the_queue_is_told(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, SLOW)
    watch_until(admin, submit(admin, session_id)["events_url"], "provider:request")
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(execute, admin, session_id, "later", queue=True)
        while not admin.get(f"/sessions/{session_id}/queue").json()["total"]:
            time.sleep(0.05)
        assert admin.delete(f"/sessions/{session_id}/queue/1").status_code == 200

        assert code(waiting.result()) == (499, "aborted")
    assert admin.delete(f"/sessions/{session_id}", params={"force": True}).status_code == 204


def test_a_queue_takes_so_many_prompts(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, SLOW)
    watch_until(admin, submit(admin, session_id)["events_url"], "provider:request")
    for number in range(32):
        assert submit(admin, session_id, f"prompt {number}", queue=True)["status"] == "queued"

    refused = admin.post(f"/sessions/{session_id}/execute/stream", json={"prompt": "one more", "queue": True})

    assert code(refused) == (429, "queue-full")
    assert admin.get(f"/sessions/{session_id}/queue").json()["total"] == 32
    assert admin.delete(f"/sessions/{session_id}", params={"force": True}).status_code == 204


def test_a_session_is_watched_by_so_many(server: RealServer, admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work)
    path = f"/sessions/{session_id}/stream"
    limits = httpx2.Limits(max_connections=100)
    headers = {"Authorization": f"Bearer {server.token}"}
    with ExitStack() as held:
        client = held.enter_context(
            httpx2.Client(base_url=f"{server.url}/api/v1", headers=headers, limits=limits, timeout=60)
        )
        for _ in range(64):
            assert held.enter_context(client.stream("GET", path)).status_code == 200
        assert code(client.get(path)) == (503, "too-many-subscribers")
        assert client.get(f"/sessions/{session_id}").status_code == 200
    assert execute(admin, session_id).status_code == 200


def test_one_owner_does_not_take_every_stream(server: RealServer, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    while server.daemon.events.subscribers:  # of tests before
        time.sleep(0.01)
    monkeypatch.setattr(server.daemon.events, "limits", StreamLimits(subscribers=8))
    greedy, other = (server.client("run", owner) for owner in ("greedy", "other"))
    watched = f"/sessions/{create(greedy, work)}/stream"
    with ExitStack() as held:
        for path in (watched, "/events", watched, "/events"):
            assert held.enter_context(greedy.stream("GET", path)).status_code == 200

        for path in (watched, "/events"):
            assert held.enter_context(greedy.stream("GET", path)).status_code == 503

        session_id = create(other, work)
        assert held.enter_context(other.stream("GET", f"/sessions/{session_id}/stream")).status_code == 200
        assert execute(other, session_id).status_code == 200


def test_a_question_that_nobody_answers_in_time_is_over(admin: httpx2.Client, tmp_path: Path) -> None:
    guard = {"module": "hooks-approval", "config": {"default_timeout": 0.3}}
    session_id = create(admin, tmp_path, mount_plan=plan(WRITE, "Not written.", tools=True, hooks=[guard]))
    events = watch_until(admin, submit(admin, session_id)["events_url"], "execution:done")
    (asked,) = [event.data["data"]["request_id"] for event in events if event.event == "approval:pending"]

    late = admin.post(f"/sessions/{session_id}/approvals/{asked}", json={"decision": "allow"})

    assert code(late) == (410, "approval-expired")
    assert "approval:expired" in [event.event for event in events]
    assert not (tmp_path / "new.md").exists()


def test_a_session_that_nobody_uses_is_unloaded_and_comes_back(tmp_path: Path) -> None:
    with real_server(tmp_path / "home", sessions={"idle_unload_minutes": 0.01}) as server:
        admin = server.client()
        session_id = create(admin, tmp_path, "One.", "Two.")
        assert execute(admin, session_id).json()["response"] == "One."
        deadline = time.monotonic() + 60
        while admin.get(f"/sessions/{session_id}").json()["activity"] is not None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert [one["sessions"] for one in admin.get("/workers").json()["workers"] if one["sessions"]] == []
        assert execute(admin, session_id).json()["turn"] == 2


@pytest.mark.parametrize("image", [{"type": "image"}, {"type": "text", "text": "x"}, {"colour": "red"}])
def test_what_is_not_an_image_is_refused(admin: httpx2.Client, work: Path, image: dict[str, str]) -> None:
    assert 400 <= execute(admin, create(admin, work), images=[image]).status_code < 500
