"""The messages and events of a session over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
from real_server import plan
from session_requests import create, execute


def test_messages_are_listed_in_parts(admin: httpx2.Client, spoken: str) -> None:
    whole = admin.get(f"/sessions/{spoken}/messages").json()
    assert [message["role"] for message in whole["messages"]] == ["user", "assistant"] * 2

    last = admin.get(f"/sessions/{spoken}/messages", params={"limit": 1}).json()
    assert (last["messages"], last["has_more"], last["total"]) == (whole["messages"][-1:], True, 4)
    first_id = whole["messages"][0]["id"]
    later = admin.get(f"/sessions/{spoken}/transcript", params={"after": first_id, "roles": "user"}).json()
    assert [message["content"] for message in later["messages"]] == ["And then?"]


def test_a_part_ends_at_a_message_that_is_not_listed_itself(admin: httpx2.Client, spoken: str) -> None:
    path = f"/sessions/{spoken}/messages"
    asked, answered, *_ = admin.get(path).json()["messages"]

    later = admin.get(path, params={"after": answered["id"], "roles": "user"}).json()
    earlier = admin.get(path, params={"before": answered["id"], "roles": "user"}).json()

    assert [message["content"] for message in later["messages"]] == ["And then?"]
    assert (earlier["messages"], earlier["total"], earlier["has_more"]) == ([asked], 2, False)


def test_messages_are_added_and_taken_back(admin: httpx2.Client, work: Path) -> None:
    session_id = create(admin, work)
    path = f"/sessions/{session_id}/messages"

    assert admin.get(path).json()["messages"] == []
    assert admin.delete(f"{path}/last").json() == {"status": "no_messages", "deleted_message": None}
    added = admin.post(path, json={"content": "Remember the milk."})
    assert (added.status_code, added.json()["role"]) == (201, "user")
    assert admin.delete(f"{path}/last").json()["deleted_message"]["content"] == "Remember the milk."
    assert admin.get(path).json()["total"] == 0


def test_stored_events_are_listed(admin: httpx2.Client, spoken: str) -> None:
    path = f"/sessions/{spoken}/events"
    done = admin.get(path, params={"event_type": "execution:done"}).json()
    assert (done["total"], done["has_more"]) == (2, False)
    later = admin.get(path, params={"after_seq": done["events"][0]["seq"], "limit": 3}).json()
    assert (len(later["events"]), later["has_more"]) == (3, True)
    assert later["events"][0]["seq"] > done["events"][0]["seq"]


def test_older_parts_are_left_out_of_what_the_model_sees(admin: httpx2.Client, work: Path, tmp_path: Path) -> None:
    long = " ".join(["word"] * 800)
    session_id = create(admin, work, *[f"{number} {long}" for number in range(6)], "Short.")
    path = f"/sessions/{session_id}"
    for _ in range(6):
        assert execute(admin, session_id).status_code == 200

    compacted = admin.post(f"{path}/compact").json()

    assert 0 < compacted["tokens_after"] < compacted["tokens_before"]
    assert compacted["messages_after"] <= compacted["messages_before"] == 12
    assert admin.get(f"{path}/messages").json()["total"] == 12
    assert admin.patch(path, json={"working_dir": str(tmp_path)}).status_code == 200  # its modules are loaded anew
    assert execute(admin, session_id).status_code == 200
    last = admin.get(f"{path}/requests").json()["requests"][-1]
    assert last["tokens"] < compacted["tokens_before"] - long.count("word") // 2


def test_half_of_a_surrogate_pair_hides_no_answer(admin: httpx2.Client, work: Path) -> None:
    def post(path: str, body: dict[str, Any]) -> httpx2.Response:
        return admin.post(path, content=json.dumps(body), headers={"Content-Type": "application/json"})

    asked = {"mount_plan": plan("half \ud83d here"), "working_dir": str(work), "metadata": {"from": "\ude00"}}
    path = f"/sessions/{post('/sessions', asked).json()['session_id']}"

    answer = post(f"{path}/execute", {"prompt": "Go on.", "metadata": {"from": "\ude00"}})

    assert (answer.status_code, answer.json()["response"]) == (200, "half ? here")
    said = admin.get(f"{path}/messages", params={"render": "html"}).json()["messages"]
    assert said[-1]["content"][0]["text"] == "half ? here"
    for part in ("", "/transcript", "/turns", "/requests", "/mount-plan", "/events"):
        assert admin.get(f"{path}{part}").status_code == 200, part
    assert admin.get("/sessions").status_code == 200
