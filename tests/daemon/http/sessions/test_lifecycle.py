"""Sessions over HTTP, from their creation to their end."""

from __future__ import annotations

import asyncio
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from real_server import RealServer, plan
from session_requests import code, create, execute

from amplifierd.store.file_store import FileStore
from amplifierd.store.hold import Holder


def test_a_session_is_created_and_runs_a_turn(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, "Milk.", name="shopping", tags=["home"])

    answer = execute(admin, session_id, "What do I need?")

    assert answer.status_code == 200, answer.text
    assert (answer.json()["response"], answer.json()["turn"]) == ("Milk.", 1)
    assert answer.json()["correlation_id"] == f"prompt_{session_id}_1"
    shown = admin.get(f"/sessions/{session_id}").json()
    assert (shown["turn_count"], shown["activity"], shown["name"], shown["tags"]) == (1, "idle", "shopping", ["home"])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"profile_name": "a/b", "mount_plan": {}}, (400, "invalid-request")),
        ({"profile_name": "local/nowhere"}, (404, "profile-not-found")),
        ({"bundle_name": "nowhere"}, (404, "bundle-not-found")),
        ({"bundle_uri": "/nowhere/bundle.md"}, (404, "bundle-not-found")),
        ({"mount_plan": {}}, (422, "mount-plan-invalid")),
        ({"session_id": "../escape", "mount_plan": plan()}, (400, "invalid-identifier")),
        ({"surprise": 1}, (422, "extra-field")),
        ({"name": "x" * 201}, (422, "validation-error")),
        ({"working_dir_scope": "galaxy"}, (422, "validation-error")),
        ({"mount_plan": plan(), "working_dir_scope": "pool"}, (409, "session-state-conflict")),
    ],
)
def test_a_session_that_cannot_be_is_refused(admin: httpx2.Client, body: Any, expected: tuple[int, str]) -> None:
    assert code(admin.post("/sessions", json=body)) == expected


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ({"profile": "offline"}, "profile: did you mean profile_name or base_profile?"),
        ({"working_directory": "/"}, "working_directory: did you mean working_dir or working_dir_scope?"),
        ({"surprise": 1}, None),
    ],
)
def test_a_field_that_is_not_known_is_told_with_the_one_that_was_meant(
    admin: httpx2.Client, body: Any, hint: str | None
) -> None:
    answer = admin.post("/sessions", json=body)

    assert code(answer) == (422, "extra-field")
    assert answer.json().get("hint") == hint


def test_the_policy_of_a_plan_in_a_request_allows_nothing_beyond_the_defaults(admin: httpx2.Client, work: Path) -> None:
    sent = plan("Done.")
    asked = {
        "read": {"allow": ["/", "~/.ssh"], "deny": ["~/ledger"]},
        "write": {"allow": ["/"]},
        "environment": {"pass": ["*"]},
    }
    sent["session"] = {**sent["session"], "policy": asked}

    session_id = create(admin, work, mount_plan=sent)

    policy = admin.get(f"/sessions/{session_id}/mount-plan").json()["session"]["policy"]
    assert policy["read"] == {"allow": ["/"], "deny": ["~/ledger"]}
    assert (policy["write"], policy["environment"]) == ({"allow": ["."]}, {"pass": []})


def test_which_machines_have_its_directory_is_said_and_changed(admin: httpx2.Client, work: Path) -> None:
    path = f"/sessions/{create(admin, work, working_dir_scope='host')}"
    shown = admin.get(path).json()

    assert (shown["working_dir_scope"], shown["working_dir_host"]) == ("host", socket.gethostname())
    assert code(admin.patch(path, json={"working_dir_scope": "shared"})) == (409, "session-state-conflict")
    assert admin.patch(path, json={"working_dir_scope": None}).json()["working_dir_scope"] == "host"


def test_an_id_is_taken_once(admin: httpx2.Client, work: Path) -> None:
    create(admin, work, session_id="mine")
    again = admin.post("/sessions", json={"mount_plan": plan(), "working_dir": str(work), "session_id": "mine"})
    assert code(again) == (409, "session-already-exists")


def test_a_broken_orchestrator_leaves_no_session_when_it_is_loaded_at_once(
    server: RealServer, admin: httpx2.Client, work: Path
) -> None:
    body = {"mount_plan": plan(orchestrator="loop-nowhere"), "working_dir": str(work), "session_id": "broken"}

    answer = admin.post("/sessions", json={**body, "load": True})

    assert code(answer) == (422, "module-load-error")
    assert "loop-nowhere" in answer.json()["detail"]
    assert admin.get("/sessions/broken").status_code == 404
    assert not (server.home.paths.sessions / "broken").exists()


def test_a_broken_orchestrator_fails_the_first_turn_and_leaves_the_session(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, mount_plan=plan(orchestrator="loop-nowhere"))

    assert code(execute(admin, session_id)) == (422, "module-load-error")

    shown = admin.get(f"/sessions/{session_id}").json()
    assert (shown["status"], shown["message_count"]) == ("active", 0)


def test_a_broken_tool_leaves_a_working_session(admin: httpx2.Client, work: Path) -> None:
    broken = {**plan("Without it."), "tools": [{"module": "tool-nowhere"}]}
    session_id = create(admin, work, mount_plan=broken, load=True)

    assert execute(admin, session_id).json()["response"] == "Without it."

    events = admin.get(f"/sessions/{session_id}/events", params={"event_type": "module:load_failed"}).json()["events"]
    assert [event["data"]["module_id"] for event in events] == ["tool-nowhere"]
    modules = admin.get(f"/sessions/{session_id}/modules").json()["modules"]
    assert [item["status"] for item in modules if item["id"] == "tool-nowhere"] == ["failed"]


def search(admin: httpx2.Client, text: str) -> list[dict[str, Any]]:
    """Return what is found, once the index has heard of it from the session's worker."""
    for _ in range(200):
        hits: list[dict[str, Any]] = admin.get("/sessions/search", params={"q": text}).json()["hits"]
        if hits:
            break
        time.sleep(0.05)
    return hits


def test_sessions_are_listed_filtered_and_found(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, "Marzipan.", name="sweets for the party")
    execute(admin, session_id)
    listed = admin.get("/sessions", params={"working_dir": str(work), "limit": 1, "offset": 0}).json()
    assert (len(listed["sessions"]), listed["limit"]) == (1, 1)

    found = admin.get("/sessions", params={"q": "sweets party"}).json()
    assert [session["session_id"] for session in found["sessions"]] == [session_id]
    hits = search(admin, "marzipan")
    assert [hit["session"]["session_id"] for hit in hits] == [session_id]
    idle = admin.get("/sessions", params={"activity": "idle"}).json()["sessions"]
    assert session_id in {session["session_id"] for session in idle}
    assert code(admin.get("/sessions", params={"sort": "colour"})) == (422, "validation-error")


@pytest.mark.parametrize(
    ("since", "is_listed"),
    [("{0}Z", True), ("{0}", True), ("{0}.999999Z", False), ("{0}+23:00", True), ("{0}-23:00", False)],
)
def test_sessions_are_listed_from_a_moment_on(admin: httpx2.Client, work: Path, since: str, is_listed: bool) -> None:
    session_id = create(admin, work)
    second = admin.get(f"/sessions/{session_id}").json()["last_activity_at"][:19]

    found = admin.get("/sessions", params={"since": since.format(second)}).json()["sessions"]

    assert (session_id in [one["session_id"] for one in found]) is is_listed


@pytest.mark.parametrize("since", ["yesterday", "0001-01-01T00:00:00+23:00"])
def test_a_moment_that_cannot_be_is_refused(admin: httpx2.Client, since: str) -> None:
    assert code(admin.get("/sessions", params={"since": since})) == (422, "validation-error")


def test_a_session_is_changed_and_ended(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, metadata={"a": 1, "b": 2})
    path = f"/sessions/{session_id}"

    changed = admin.patch(path, json={"name": "other", "metadata": {"b": None, "c": 3}, "limits": {"turns": 3}}).json()
    assert (changed["name"], changed["metadata"], changed["limits"]) == ("other", {"a": 1, "c": 3}, {"turns": 3})
    ended = admin.patch(path, json={"status": "failed", "error_message": "no luck"}).json()
    assert (ended["status"], ended["error_message"]) == ("failed", "no luck")
    assert code(admin.patch(path, json={"status": "completed"})) == (409, "session-state-conflict")
    assert code(execute(admin, session_id)) == (409, "session-state-conflict")
    assert code(admin.post(f"{path}/start", json={})) == (409, "session-state-conflict")
    assert execute(admin, session_id, auto_resume=True).status_code == 200
    assert admin.get(path).json()["status"] == "active"


def test_a_session_can_belong_to_another(admin: httpx2.Client, work: Path, spoken: str) -> None:
    session_id = create(admin, work, "Below.", parent_session_id=spoken)

    assert execute(admin, session_id).json()["response"] == "Below."
    assert [one["session_id"] for one in admin.get(f"/sessions/{session_id}/lineage").json()["ancestors"]] == [spoken]
    orphan = admin.post("/sessions", json={"mount_plan": plan(), "parent_session_id": "none"})
    assert code(orphan) == (404, "session-not-found")


def test_a_session_that_was_not_started_is_started(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, start=False)
    assert admin.get(f"/sessions/{session_id}").json()["status"] == "created"
    assert code(execute(admin, session_id)) == (409, "session-state-conflict")

    assert admin.post(f"/sessions/{session_id}/start").status_code == 204

    assert admin.get(f"/sessions/{session_id}").json()["status"] == "active"


def test_a_session_that_was_not_started_waits_for_its_start(admin: httpx2.Client, work: Path) -> None:
    path = f"/sessions/{create(admin, work, start=False)}"

    answers = [
        admin.post(f"{path}/resume"),
        admin.post(f"{path}/execute", json={"prompt": "Go.", "auto_resume": True}),
        admin.post(f"{path}/steer", json={"content": "Left!"}),
        admin.patch(path, json={"status": "completed"}),
        admin.get(f"{path}/tools"),
    ]

    assert {code(answer) for answer in answers} == {(409, "session-state-conflict")}
    assert all("is created and cannot" in answer.json()["detail"] for answer in answers)
    assert all("can be started" in answer.json()["detail"] for answer in answers)
    assert admin.get(path).json()["status"] == "created"


def test_an_ended_session_is_resumed(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work)
    admin.patch(f"/sessions/{session_id}", json={"status": "completed"})

    resumed = admin.post(f"/sessions/{session_id}/resume").json()

    assert (resumed["resumed"], resumed["status"], resumed["ended_at"]) == (True, "active", None)


def test_a_session_that_has_ended_does_not_go_on_because_somebody_looks_into_it(
    admin: httpx2.Client, work: Path
) -> None:
    path = f"/sessions/{create(admin, work)}"
    admin.patch(path, json={"status": "completed"})

    answers = [admin.get(f"{path}/{part}") for part in ("tools", "hooks", "capabilities", "agents")]
    answers += [admin.post(f"{path}/steer", json={"content": "Left!"}), admin.post(f"{path}/compact")]

    assert {code(answer) for answer in answers} == {(409, "session-state-conflict")}
    assert admin.get(path).json()["status"] == "completed"


def test_a_deleted_session_is_gone(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work)
    assert execute(admin, session_id).status_code == 200

    assert admin.delete(f"/sessions/{session_id}").status_code == 204

    assert code(admin.get(f"/sessions/{session_id}")) == (404, "session-not-found")


def test_a_damaged_session_says_so_without_its_contents_and_hides_no_other(
    server: RealServer, admin: httpx2.Client, work: Path
) -> None:
    damaged, whole = create(admin, work), create(admin, work)
    directory = server.home.paths.sessions / damaged
    (directory / "metadata.json").write_text('{"format_version": 1, "name": "what was said"}')

    answers = [admin.get(f"/sessions/{damaged}"), execute(admin, damaged), admin.delete(f"/sessions/{damaged}")]

    assert {code(answer) for answer in answers} == {(500, "session-damaged")}
    told = answers[0].json()
    assert "…/metadata.json is not the metadata of a session: " in told["detail"]
    assert "restore it from a backup" in told["hint"]
    assert not any("what was said" in answer.text or str(server.home.paths.home) in answer.text for answer in answers)
    listed = [one["session_id"] for one in admin.get("/sessions", params={"limit": 1000}).json()["sessions"]]
    assert (whole in listed, damaged in listed) == (True, False)
    shutil.rmtree(directory)


def test_old_sessions_are_cleaned_up_by_an_admin(server: RealServer, admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work)
    admin.patch(f"/sessions/{session_id}", json={"status": "completed"})

    dry = admin.post("/sessions/cleanup", json={"older_than_days": 0, "dry_run": True}).json()

    assert session_id in dry["removed"]
    assert admin.get(f"/sessions/{session_id}").status_code == 200
    assert code(server.client("run", "ann").post("/sessions/cleanup", json={})) == (403, "forbidden")
    assert admin.post("/sessions/cleanup", json={"older_than_days": 10**30}).status_code == 422


def test_a_person_takes_a_session_from_a_program_that_does_not_let_it_go(
    admin: httpx2.Client, server: RealServer, work: Path
) -> None:
    session_id = create(admin, work, "Milk.")
    store = FileStore(server.home.paths)
    asyncio.run(store.acquire(session_id, Holder.of_this_process("another")))

    refused = admin.post(f"/sessions/{session_id}/resume")
    taken = admin.post(f"/sessions/{session_id}/resume", params={"take_over": True})

    assert code(refused) == (409, "session-held")
    assert taken.status_code == 200, taken.text
    assert execute(admin, session_id, "What do I need?").json()["response"] == "Milk."
    asyncio.run(store.close())
