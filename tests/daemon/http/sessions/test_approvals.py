"""Questions that a session asks, answered over HTTP."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx2
from real_server import RealServer, plan
from session_requests import WRITE, code, create, submit, watch_until


def test_a_call_is_asked_about_once_however_many_watch(admin: httpx2.Client, tmp_path: Path) -> None:
    guarded = plan(WRITE, "Written.", tools=True, hooks=[{"module": "hooks-approval"}])
    session_id = create(admin, tmp_path, mount_plan=guarded)
    path = f"/sessions/{session_id}"
    url = submit(admin, session_id)["events_url"]

    watched = [watch_until(admin, url, "approval:pending") for _ in range(3)]

    questions = [event for event in watched[0] if event.event.startswith("approval:")]
    assert [event.event for event in questions] == ["approval:required", "approval:pending"]
    assert all([event.id for event in one] == [event.id for event in watched[0]] for one in watched)
    (pending,) = admin.get(f"{path}/approvals").json()["pending"]
    assert pending["request_id"] == questions[1].data["data"]["request_id"]
    assert [one["request_id"] for one in admin.get("/approvals").json()["pending"]] == [pending["request_id"]]
    answer_path = f"{path}/approvals/{pending['request_id']}"
    assert code(admin.post(answer_path, json={})) == (422, "validation-error")
    assert code(admin.post(f"{path}/approvals/none", json={"decision": "allow"})) == (404, "approval-not-found")
    assert admin.post(answer_path, json={"decision": "allow"}).json()["status"] == "resolved"
    assert code(admin.post(answer_path, json={"approved": False})) == (409, "approval-already-resolved")
    watch_until(admin, url, "execution:done")
    assert (tmp_path / "new.md").read_text() == "hello"


def test_the_api_carries_the_whole_question_and_only_an_admin_answers_it_for_good(
    server: RealServer, admin: httpx2.Client, tmp_path: Path
) -> None:
    run = server.client("run")
    guarded = plan(WRITE, "Written.", tools=True, hooks=[{"module": "hooks-approval"}])
    session_id = create(run, tmp_path, mount_plan=guarded)
    url = submit(run, session_id)["events_url"]
    watch_until(run, url, "approval:pending")
    (pending,) = run.get("/approvals").json()["pending"]
    path = f"/sessions/{session_id}/approvals/{pending['request_id']}"

    assert pending["input"] == {"file_path": "new.md", "content": "hello"}
    assert pending["working_dir"] == str(tmp_path)
    assert pending["always_covers"] == "write files in ./"
    assert pending["prompt"].endswith("a yes covers: this call\nalways covers: write files in ./")
    assert code(run.post(path, json={"decision": "allow", "remember": "always"})) == (422, "validation-error")
    for reach in ("project", "everywhere"):
        assert run.post(path, json={"decision": "allow", "remember": reach}).status_code == 403
    assert not server.home.paths.approvals_file.exists()
    assert admin.post(path, json={"decision": "allow", "remember": "project"}).status_code == 200
    watch_until(admin, url, "execution:done")
    assert "write files in ./" in server.home.paths.approvals_file.read_text()

    later = create(run, tmp_path, mount_plan=guarded)
    watch_until(run, submit(run, later)["events_url"], "execution:done")
    assert run.get(f"/sessions/{later}/approvals", params={"all": True}).json()["total"] == 0


def test_a_session_that_is_gone_hides_no_other(server: RealServer, admin: httpx2.Client, tmp_path: Path) -> None:
    guarded = plan(WRITE, "Written.", tools=True, hooks=[{"module": "hooks-approval"}])
    gone, asking = [create(admin, tmp_path, mount_plan=guarded) for _ in range(2)]
    for session_id in (gone, asking):
        watch_until(admin, submit(admin, session_id)["events_url"], "approval:pending")
    shutil.rmtree(server.home.paths.sessions / gone)

    pending = admin.get("/approvals")
    waiting = admin.get("/sessions", params={"activity": "waiting_approval"})

    assert [one["session_id"] for one in pending.json()["pending"]] == [asking]
    assert [one["session_id"] for one in waiting.json()["sessions"]] == [asking]
    assert admin.post(f"/sessions/{asking}/cancel", json={"immediate": True}).status_code == 200


def test_the_permission_level_is_a_field_of_a_session_that_changes_while_a_turn_runs(
    admin: httpx2.Client, tmp_path: Path
) -> None:
    waiting = {"tool_calls": [{"name": "bash", "arguments": {"command": "sleep 0.1"}}]}
    tools = [{"module": "tool-filesystem"}, {"module": "tool-bash", "config": {"sandbox": "off"}}]
    acting = {**plan(waiting, WRITE, "Done."), "tools": tools}
    session_id = create(admin, tmp_path, mount_plan=acting, permission_level="ask")
    path = f"/sessions/{session_id}"
    assert admin.get(path).json()["permission_level"] == "ask"
    url = submit(admin, session_id)["events_url"]
    watch_until(admin, url, "approval:pending")

    assert code(admin.patch(path, json={"permission_level": "wild"})) == (422, "validation-error")
    assert admin.patch(path, json={"permission_level": "plan"}).json()["permission_level"] == "plan"
    (pending,) = admin.get(f"{path}/approvals").json()["pending"]
    admin.post(f"{path}/approvals/{pending['request_id']}", json={"decision": "allow"})
    watch_until(admin, url, "execution:done")

    said = [str(one["content"]) for one in admin.get(f"{path}/messages").json()["messages"] if one["role"] == "tool"]
    assert all("permission level plan" in text for text in said[-1:])
    assert not (tmp_path / "new.md").exists()


def test_what_is_remembered_is_listed_and_revoked_and_only_an_admin_revokes_what_lasts(
    server: RealServer, admin: httpx2.Client, tmp_path: Path
) -> None:
    run = server.client("run")
    guarded = plan(WRITE, "Written.", tools=True, hooks=[{"module": "hooks-approval"}])
    for remember, status in (("session", 204), ("project", 403)):
        session_id = create(run, tmp_path, mount_plan=guarded)
        url = submit(run, session_id)["events_url"]
        watch_until(run, url, "approval:pending")
        (pending,) = run.get(f"/sessions/{session_id}/approvals").json()["pending"]
        admin.post(
            f"/sessions/{session_id}/approvals/{pending['request_id']}",
            json={"decision": "allow", "remember": remember},
        )
        watch_until(run, url, "execution:done")
        (one,) = run.get(f"/sessions/{session_id}/permissions").json()["remembered"]
        assert (one["reach"], one["tool"], one["covers"]) == (remember, "write_file", "write files in ./")
        path = f"/sessions/{session_id}/permissions/{one['approval_id']}"
        assert run.delete(path).status_code == status
        assert admin.delete(path).status_code == (404 if status == 204 else 204)
        assert run.get(f"/sessions/{session_id}/permissions").json()["remembered"] == []
