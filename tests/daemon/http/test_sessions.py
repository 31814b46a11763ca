"""Sessions over HTTP: what each endpoint does, and whom it refuses, with real workers."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

sys.path.append(str(Path(__file__).parent))

from real_server import RealServer, SentEvent, plan, read_events, real_server

WRITE = {"tool_calls": [{"name": "write_file", "arguments": {"file_path": "new.md", "content": "hello"}}]}
SLOW = {"text": "Late.", "latency_ms": 60_000}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with real_server(tmp_path_factory.mktemp("home")) as served:
        yield served


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    (folder / "notes.md").write_text("- buy milk\n")
    return folder


@pytest.fixture
def admin(server: RealServer) -> httpx2.Client:
    return server.client()


@pytest.fixture(scope="module")
def spoken(server: RealServer, work: Path) -> str:
    """A session with two turns."""
    session_id = create(server.client(), work, "Milk.", "Bread.", name="shopping for the week")
    for prompt in ("What do I need?", "And then?"):
        assert execute(server.client(), session_id, prompt).status_code == 200
    return session_id


def create(client: httpx2.Client, work: Path, *script: Any, mount_plan: Any = None, **more: Any) -> str:
    body = {"mount_plan": mount_plan or plan(*script), "working_dir": str(work), **more}
    answer = client.post("/sessions", json=body)
    assert answer.status_code == 201, answer.text
    assert answer.headers["Location"].endswith(answer.json()["session_id"])
    return str(answer.json()["session_id"])


def execute(client: httpx2.Client, session_id: str, prompt: str = "Go on.", **more: Any) -> httpx2.Response:
    return client.post(f"/sessions/{session_id}/execute", json={"prompt": prompt, **more})


def submit(client: httpx2.Client, session_id: str, prompt: str = "Go on.", **more: Any) -> dict[str, Any]:
    answer = client.post(f"/sessions/{session_id}/execute/stream", json={"prompt": prompt, **more})
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


def watch_until(client: httpx2.Client, url: str, name: str) -> list[SentEvent]:
    """Return the events of a stream up to the first one with a name."""
    seen = []
    with client.stream("GET", url.removeprefix("/api/v1")) as response:
        for event in read_events(response):
            seen.append(event)
            if event.event == name:
                break
    return seen


def code(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


# --- lifecycle


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
        ({"mount_plan": {}}, (422, "mount-plan-invalid")),
        ({"session_id": "../escape", "mount_plan": plan()}, (400, "invalid-identifier")),
        ({"surprise": 1}, (422, "extra-field")),
        ({"name": "x" * 201}, (422, "validation-error")),
    ],
)
def test_a_session_that_cannot_be_is_refused(admin: httpx2.Client, body: Any, expected: tuple[int, str]) -> None:
    assert code(admin.post("/sessions", json=body)) == expected


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
    modules = admin.get(f"/sessions/{session_id}/modules").json()["items"]
    assert [item["status"] for item in modules if item["id"] == "tool-nowhere"] == ["failed"]


def test_sessions_are_listed_filtered_and_found(admin: httpx2.Client, work: Path, spoken: str) -> None:
    listed = admin.get("/sessions", params={"working_dir": str(work), "limit": 1}).json()
    assert (len(listed["sessions"]), listed["limit"], listed["has_more"]) == (1, 1, True)

    found = admin.get("/sessions", params={"q": "shopping week"}).json()
    assert [session["session_id"] for session in found["sessions"]] == [spoken]
    hits = admin.get("/sessions/search", params={"q": "bread"}).json()["hits"]
    assert [hit["session"]["session_id"] for hit in hits] == [spoken]
    idle = admin.get("/sessions", params={"activity": "idle"}).json()["sessions"]
    assert spoken in {session["session_id"] for session in idle}
    assert code(admin.get("/sessions", params={"sort": "colour"})) == (422, "validation-error")


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


def test_an_ended_session_is_resumed(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work)
    admin.patch(f"/sessions/{session_id}", json={"status": "completed"})

    resumed = admin.post(f"/sessions/{session_id}/resume").json()

    assert (resumed["resumed"], resumed["status"], resumed["ended_at"]) == (True, "active", None)


def test_a_deleted_session_is_gone(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work)
    assert execute(admin, session_id).status_code == 200

    assert admin.delete(f"/sessions/{session_id}").status_code == 204

    assert code(admin.get(f"/sessions/{session_id}")) == (404, "session-not-found")


def test_old_sessions_are_cleaned_up_by_an_admin(server: RealServer, admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work)
    admin.patch(f"/sessions/{session_id}", json={"status": "completed"})

    dry = admin.post("/sessions/cleanup", json={"older_than_days": 0, "dry_run": True}).json()

    assert session_id in dry["removed"]
    assert admin.get(f"/sessions/{session_id}").status_code == 200
    assert code(server.client("run", "ann").post("/sessions/cleanup", json={})) == (403, "forbidden")


# --- whom it is refused

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


# --- turns


def test_the_events_of_a_turn_are_its_answer_when_they_are_asked_for(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, "Milk.")
    headers = {"Accept": "text/event-stream"}

    with admin.stream("POST", f"/sessions/{session_id}/execute", json={"prompt": "What?"}, headers=headers) as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["cache-control"] == "no-cache, no-transform"
        events = [*read_events(response)]

    names = [event.event for event in events]
    assert (names[0], names[-1], names.count("execution:done")) == ("user_message:saved", "execution:done", 1)
    numbers = [int(event.id or 0) for event in events]
    assert numbers == [*range(numbers[0], numbers[0] + len(numbers))]
    assert {event.data["correlation_id"] for event in events} == {f"prompt_{session_id}_1"}


def test_a_turn_that_is_submitted_can_be_watched_from_its_first_event(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, "Milk.")

    accepted = submit(admin, session_id)
    names = [event.event for event in watch_until(admin, accepted["events_url"], "execution:done")]

    assert accepted["status"] == "accepted"
    assert [name for name in names if name.endswith("message:saved")] == ["user_message:saved"]


def test_who_stops_waiting_loses_nothing(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, {"text": "In the end.", "latency_ms": 500})
    body = {"json": {"prompt": "Go on."}, "headers": {"Accept": "text/event-stream"}}
    with admin.stream("POST", f"/sessions/{session_id}/execute", **body) as response:
        next(read_events(response))

    done = watch_until(admin, f"/sessions/{session_id}/stream?after=0", "execution:done")[-1]

    assert done.data["data"]["response"] == "In the end."


def test_a_key_runs_a_turn_once(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, "One.", "Two.")
    key = {"Idempotency-Key": f"key-{session_id}"}
    path, body = f"/sessions/{session_id}/execute", {"prompt": "Count."}

    first = admin.post(path, json=body, headers=key)
    again = admin.post(path, json=body, headers=key)

    assert (first.json()["response"], again.json()) == ("One.", first.json())
    assert code(admin.post(path, json={"prompt": "Other."}, headers=key)) == (409, "idempotency-conflict")
    assert admin.get(f"/sessions/{session_id}").json()["turn_count"] == 1
    streaming = {**key, "Idempotency-Key": f"stream-{session_id}", "Accept": "text/event-stream"}
    with admin.stream("POST", path, json=body, headers=streaming) as response:
        assert [*read_events(response)][-1].event == "execution:done"
    repeated = admin.post(path, json=body, headers=streaming)
    assert (repeated.status_code, repeated.json()["status"]) == (202, "accepted")
    assert admin.get(f"/sessions/{session_id}").json()["turn_count"] == 2


def test_a_failed_turn_is_answered_with_its_problem(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, {"error": {"type": "AuthenticationError", "message": "no such key"}}, "Here.")

    assert code(execute(admin, session_id)) == (502, "provider-auth")

    assert admin.get(f"/sessions/{session_id}").json()["last_error"]["code"] == "provider-auth"
    assert execute(admin, session_id).json()["response"] == "Here."


def test_a_running_turn_is_queued_behind_steered_and_cancelled(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, SLOW, SLOW)
    path = f"/sessions/{session_id}"
    assert code(admin.post(f"{path}/steer", json={"content": "Hurry."})) == (409, "nothing-to-steer")
    assert admin.post(f"{path}/cancel", json={}).json()["state"] == "none"
    watch_until(admin, submit(admin, session_id, "First.")["events_url"], "provider:request")

    assert code(execute(admin, session_id)) == (409, "execution-in-progress")
    assert code(admin.delete(path)) == (409, "execution-in-progress")
    assert code(admin.post(f"{path}/messages", json={"content": "x"})) == (409, "execution-in-progress")
    assert submit(admin, session_id, "Second.", queue=True)["status"] == "queued"
    assert admin.get(f"{path}/queue").json() == {"queue": ["Second."], "total": 1}
    assert admin.get(path).json()["activity"] == "executing"
    assert admin.delete(f"{path}/queue/1").json() == {"prompt": "Second."}
    assert admin.delete(f"{path}/queue/1").status_code == 409
    steered = admin.post(f"{path}/steer", json={"content": "Hurry."})
    assert (steered.status_code, steered.json()["delivered"]) == (202, True)
    cancelled = admin.post(f"{path}/cancel", json={"immediate": True}).json()
    assert cancelled["state"] == "immediate"
    done = watch_until(admin, f"{path}/stream?after=0", "execution:done")[-1]
    assert done.data["data"]["status"] == "cancelled"
    assert admin.get(f"{path}/cancel").json()["is_cancelled"] in (True, False)


def test_a_profile_is_switched_when_the_running_turn_has_ended(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, {"text": "Of the plan.", "latency_ms": 1000})
    watch_until(admin, submit(admin, session_id)["events_url"], "provider:request")

    switched = admin.post(f"/sessions/{session_id}/change-profile", json={"profile_name": "foundation/offline"})

    assert switched.status_code == 200, switched.text
    assert switched.json()["profile_name"] == "foundation/offline"
    said = [message["content"] for message in admin.get(f"/sessions/{session_id}/messages").json()["messages"]]
    assert said[0] == "Go on."
    assert "Of the plan." in str(said[1])
    assert execute(admin, session_id).status_code == 200
    missing = admin.post(f"/sessions/{session_id}/change-profile", json={"profile_name": "local/nowhere"})
    assert code(missing) == (404, "profile-not-found")


# --- messages, trees, plans


def test_messages_are_listed_in_parts(admin: httpx2.Client, spoken: str) -> None:
    whole = admin.get(f"/sessions/{spoken}/messages").json()
    assert [message["role"] for message in whole["messages"]] == ["user", "assistant"] * 2

    last = admin.get(f"/sessions/{spoken}/messages", params={"limit": 1}).json()
    assert (last["messages"], last["has_more"], last["total"]) == (whole["messages"][-1:], True, 4)
    first_id = whole["messages"][0]["id"]
    later = admin.get(f"/sessions/{spoken}/transcript", params={"after": first_id, "roles": "user"}).json()
    assert [message["content"] for message in later["messages"]] == ["And then?"]


def test_messages_are_added_and_taken_back(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work)
    path = f"/sessions/{session_id}/messages"

    assert admin.get(path).json()["messages"] == []
    assert admin.delete(f"{path}/last").json() == {"status": "no_messages", "deleted_message": None}
    added = admin.post(path, json={"content": "Remember the milk."})
    assert (added.status_code, added.json()["role"]) == (201, "user")
    assert admin.delete(f"{path}/last").json()["deleted_message"]["content"] == "Remember the milk."
    assert admin.get(path).json()["total"] == 0


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


def test_what_is_inside_a_session_is_shown(admin: httpx2.Client, spoken: str) -> None:
    path = f"/sessions/{spoken}"
    assert admin.get(f"{path}/mount-plan").json()["mount_plan"] == admin.get(f"{path}/config").json()["mount_plan"]
    modules = {item["id"]: item["status"] for item in admin.get(f"{path}/modules").json()["items"]}
    assert modules["loop-streaming"] == "loaded"
    for part in ("tools", "hooks", "capabilities", "agents"):
        assert admin.get(f"{path}/{part}").status_code == 200
    requests = admin.get(f"{path}/requests").json()
    assert (requests["total"], requests["requests"][0]["turn"]) == (2, 1)
    one = admin.get(f"{path}/requests/{requests['requests'][1]['request_id']}").json()
    assert any("And then?" in str(part["content"]) for part in one["parts"])
    assert admin.get(f"{path}/requests/none").status_code == 404


def test_stored_events_are_listed(admin: httpx2.Client, spoken: str) -> None:
    path = f"/sessions/{spoken}/events"
    done = admin.get(path, params={"event_type": "execution:done"}).json()
    assert (done["total"], done["has_more"]) == (2, False)
    later = admin.get(path, params={"after_seq": done["events"][0]["seq"], "limit": 3}).json()
    assert (len(later["events"]), later["has_more"]) == (3, True)
    assert later["events"][0]["seq"] > done["events"][0]["seq"]


def test_what_a_turn_did_is_shown_and_taken_back(admin: httpx2.Client, tmp_path: Path) -> None:
    session_id = create(admin, tmp_path, mount_plan=plan(WRITE, "Written.", tools=True))
    assert execute(admin, session_id).status_code == 200

    changes = admin.get(f"/sessions/{session_id}/changes", params={"turn": 1}).json()
    assert (changes["added"], "+hello" in changes["diff"]) == (["new.md"], True)
    undone = admin.post(f"/sessions/{session_id}/undo", json={"turn": 1}).json()

    assert (undone["done"], (tmp_path / "new.md").exists()) == (True, False)
    assert admin.get(f"/sessions/{session_id}/messages").json()["total"] == 0
    assert code(admin.get(f"/sessions/{session_id}/changes", params={"turn": 7})) == (422, "validation-error")


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


# --- questions


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
