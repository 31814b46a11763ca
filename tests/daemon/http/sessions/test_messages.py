"""The messages and events of a session over HTTP."""

from __future__ import annotations

from pathlib import Path

import httpx2
from session_requests import create


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


def test_stored_events_are_listed(admin: httpx2.Client, spoken: str) -> None:
    path = f"/sessions/{spoken}/events"
    done = admin.get(path, params={"event_type": "execution:done"}).json()
    assert (done["total"], done["has_more"]) == (2, False)
    later = admin.get(path, params={"after_seq": done["events"][0]["seq"], "limit": 3}).json()
    assert (len(later["events"]), later["has_more"]) == (3, True)
    assert later["events"][0]["seq"] > done["events"][0]["seq"]
