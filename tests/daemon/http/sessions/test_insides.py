"""What a session is made of and what its turns changed, over HTTP."""

from __future__ import annotations

import base64
import io
import zipfile
from pathlib import Path

import httpx2
from real_server import plan
from session_requests import WRITE, code, create, execute, watch_until


def test_what_is_inside_a_session_is_shown(admin: httpx2.Client, spoken: str) -> None:
    path = f"/sessions/{spoken}"
    stored = admin.get(f"{path}/mount-plan").json()
    assert stored["session"]["orchestrator"]["module"] == "loop-streaming"
    assert admin.get(f"{path}/config").json() == stored
    modules = {item["id"]: item["status"] for item in admin.get(f"{path}/modules").json()["modules"]}
    assert modules["loop-streaming"] == "loaded"
    for part in ("tools", "hooks", "capabilities", "agents"):
        assert {part, "total", "limit", "offset", "has_more"} == admin.get(f"{path}/{part}").json().keys()
    requests = admin.get(f"{path}/requests").json()
    assert (requests["total"], requests["requests"][0]["turn"]) == (2, 1)
    one = admin.get(f"{path}/requests/{requests['requests'][1]['request_id']}").json()
    assert any("And then?" in str(part["content"]) for part in one["parts"])
    assert admin.get(f"{path}/requests/none").status_code == 404


def test_what_a_turn_did_is_shown_and_taken_back(admin: httpx2.Client, tmp_path: Path) -> None:
    session_id = create(admin, tmp_path, mount_plan=plan(WRITE, "Written.", tools=True))
    assert execute(admin, session_id).status_code == 200

    changes = admin.get(f"/sessions/{session_id}/changes", params={"turn": 1}).json()
    assert (changes["added"], "+hello" in changes["diff"]) == (["new.md"], True)
    undone = admin.post(f"/sessions/{session_id}/undo", json={"turn": 1}).json()

    assert (undone["done"], (tmp_path / "new.md").exists()) == (True, False)
    assert admin.get(f"/sessions/{session_id}/messages").json()["total"] == 0
    assert code(admin.get(f"/sessions/{session_id}/changes", params={"turn": 7})) == (422, "validation-error")


def test_stored_events_are_chosen_by_name_and_looked_through_in_short(admin: httpx2.Client, spoken: str) -> None:
    path = f"/sessions/{spoken}/events"

    chosen = admin.get(path, params={"filter": "user_message:saved,execution:d*"}).json()
    short = admin.get(path, params={"filter": "user_message:*", "shorten": 20}).json()["events"]

    assert [event["event"] for event in chosen["events"]] == ["user_message:saved", "execution:done"] * 2
    ids = [event["data"]["message_id"] for event in chosen["events"][::2]]
    assert [event["data"]["message_id"] for event in short] == [f"{message_id[:20]}…" for message_id in ids]


def test_a_request_names_the_message_that_answered_it(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work, "The same.", "The same.")
    for _ in range(2):
        assert execute(admin, session_id).status_code == 200

    requests = admin.get(f"/sessions/{session_id}/requests").json()["requests"]

    messages = admin.get(f"/sessions/{session_id}/messages", params={"roles": "assistant"}).json()["messages"]
    assert [request["message_id"] for request in requests] == [message["id"] for message in messages]
    shown = admin.get(f"/sessions/{session_id}/requests/{requests[0]['request_id']}").json()
    assert shown["message_id"] == messages[0]["id"]


def test_the_build_of_a_session_is_shown_and_compared_with_the_newest(admin: httpx2.Client, work: Path) -> None:
    profile = {"name": "changing", "description": "Changes.", "extends": "foundation/offline", "instruction": "One."}
    assert admin.post("/profiles", json=profile).status_code == 201
    overrides = {"session": {"orchestrator": {"config": {"max_iterations": 7}}}}
    asked = {"profile_name": "local/changing", "working_dir": str(work), "settings_overrides": overrides}
    session = admin.post("/sessions", json=asked).json()
    path = f"/sessions/{session['session_id']}"

    assert admin.get(f"{path}/lock").json()["build_id"] == session["build_id"]
    same = admin.get(f"{path}/newest-build").json()
    assert (same["is_newest"], same["status"], same["difference"]) == (True, "fresh", None)
    values = {value["key"]: value for value in admin.get(f"{path}/explain").json()["values"]}
    assert (values["instruction"]["value"], values["instruction"]["origin"]["profile"]) == ("One.", "local/changing")
    limit = values["session.orchestrator.config.max_iterations"]
    assert (limit["value"], limit["origin"]["profile"], limit["overrode"][-1]["value"]) == (7, "request", 100)
    mode = values["providers[provider-mock].config.mode"]["origin"]
    assert (mode["profile"], Path(mode["file"]).name, mode["line"] > 1) == ("foundation/offline", "profile.md", True)

    changed = {"instruction": "Two.", "tools": [{"module": "tool-bash", "config": {"timeout": 5}}]}
    assert admin.patch("/profiles/local/changing", json=changed).status_code == 200
    assert admin.get(f"{path}/newest-build").json()["status"] == "stale"
    assert admin.post("/profiles/local/changing/compile", json={}).status_code == 200
    newer = admin.get(f"{path}/newest-build").json()

    assert (newer["is_newest"], newer["build_id"]) == (False, session["build_id"])
    told = watch_until(admin, f"{path}/stream?after=0", "session:stale")
    newest = admin.get("/profiles/local/changing/status").json()["build_id"]
    assert (told[-1].data["data"]["build_id"], admin.get(path).json()["stale"]) == (newest, True)
    assert (same["is_told_otherwise"], newer["is_told_otherwise"]) == (False, True)
    assert [module["module"] for module in newer["difference"]["added"]] == ["tool-bash"]
    assert "timeout" not in str(admin.get(f"{path}/explain").json())
    assert admin.get(f"{path}/lock").json()["build_id"] == session["build_id"]


def test_a_session_without_a_profile_has_values_but_no_lock(admin: httpx2.Client, spoken: str) -> None:
    values = {value["key"]: value for value in admin.get(f"/sessions/{spoken}/explain").json()["values"]}

    module = values["session.context.module"]
    assert (module["value"], module["origin"], module["overrode"]) == ("context-simple", None, [])
    assert code(admin.get(f"/sessions/{spoken}/lock")) == (404, "not-found")
    assert code(admin.get(f"/sessions/{spoken}/newest-build")) == (404, "not-found")


def test_the_turns_of_a_session_say_how_they_ended_and_what_they_used(admin: httpx2.Client, spoken: str) -> None:
    first, second = admin.get(f"/sessions/{spoken}/turns").json()["turns"]

    assert (second["status"], second["error"], second["usage"]["tokens"]["total"] > 0) == ("completed", None, True)
    assert first["started_at"] < first["ended_at"] < second["started_at"] < second["ended_at"]
    tree = admin.get(f"/sessions/{spoken}/tree").json()
    assert (tree["turn_count"], tree["children"], tree["usage"]["tokens"]["total"] > 0) == (2, [], True)


def test_a_file_that_would_fill_the_daemons_memory_is_not_imported(admin: httpx2.Client) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("sessions/0/transcript.jsonl", b"x" * 77_777)
    claimed = packed.getvalue().replace((77_777).to_bytes(4, "little"), (200 << 20).to_bytes(4, "little"))

    answer = admin.post("/sessions/import", json={"data": base64.b64encode(claimed).decode()})

    assert code(answer) == (422, "validation-error"), answer.text
    assert "what is in it is larger than the 134,217,728 bytes" in answer.json()["detail"]
