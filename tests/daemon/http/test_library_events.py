"""What becomes of collections and profiles is told to whoever watches all events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2
from real_server import read_events

from amplifierd.identifiers import ProfileId
from amplifierd.profiles.builds.staleness import ProfileStatus, Reason
from amplifierd.server.upkeep import LibraryEvents

OWN = """---
profile: {name: told, version: 1.0.0, schema_version: 2, extends: foundation/offline}
tools:
- {module: tool-absent, source: ./nowhere}
---
"""


def test_what_was_compiled_and_synced_is_told(admin: httpx2.Client) -> None:
    watched = {"filter": "profile:*,collection:*"}
    with admin.stream("GET", "/events", params=watched) as response:
        events = read_events(response)
        assert next(events).event == "stream:connected"
        assert admin.post("/profiles/foundation/offline/compile", json={"force": True}).status_code == 200
        assert admin.post("/collections/foundation/sync", json={"auto_compile": False}).status_code == 200
        told = [next(events) for _ in range(2)]

    assert [(each.event, each.data["data"]) for each in told] == [
        ("profile:compiled", {"profile_id": "foundation/offline", "status": "compiled"}),
        ("collection:synced", {"collection_id": "foundation", "status": "synced"}),
    ]


def test_a_profile_that_cannot_be_compiled_is_told_without_its_reasons(admin: httpx2.Client) -> None:
    assert admin.post("/profiles", json={"markdown": OWN}).status_code == 201
    with admin.stream("GET", "/events", params={"filter": "profile:*"}) as response:
        events = read_events(response)
        assert next(events).event == "stream:connected"
        assert admin.post("/profiles/told/compile").status_code >= 400
        told = next(events)

    assert (told.event, told.data["data"]) == ("profile:compiled", {"profile_id": "local/told", "status": "failed"})
    assert admin.delete("/profiles/told").status_code == 204


def test_a_profile_whose_build_is_out_of_date_is_told_when_it_is_looked_at() -> None:
    told = list[tuple[str, Mapping[str, Any]]]()
    events = LibraryEvents(lambda name, data: told.append((name, data)))

    for status in ("fresh", "stale"):
        events.seen(ProfileStatus(ProfileId("local", "mine"), status, (Reason("profile-changed"),)))  # type: ignore[arg-type]

    assert told == [("profile:stale", {"profile_id": "local/mine", "status": "stale", "reasons": ["profile-changed"]})]
