"""Streams of events, asked for as nobody would: they go on for ever, so only the beginning of each is read."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest
import schemathesis
from api_operations import API
from fuzzing import EXAMPLES, attack
from world import World

from amplifierd.app import create_app

OURS = {"authorization", "cookie", "host", "content-length"}


@pytest.mark.parametrize("path", [f"{API}/events", f"{API}/sessions/{{session_id}}/stream"])
def test_no_request_for_events_is_answered_by_a_failure(world: World, path: str) -> None:
    schema = schemathesis.openapi.from_dict(create_app(home=world.server.home).openapi())
    documented = next(each.statuses for each in world.operations if each.name == f"GET {path}")
    answered = set()

    def send(case: Any) -> None:
        sent = case.as_transport_kwargs(base_url=world.server.url)
        headers = {name: text for name, text in (sent.get("headers") or {}).items() if name.lower() not in OURS}
        address = sent["url"].removeprefix(world.server.url)
        answer = world.send("GET", f"{address}?{urlencode(sent.get('params') or {}, doseq=True)}", **headers)
        answered.add(answer.status)
        assert answer.status in documented - {500}, answer.text

    known = {"session_id": [world.session_id], "session": [world.session_id], "after": ["1"]}
    assert attack(schema[path]["GET"], known, send, examples=max(20, EXAMPLES)) == ""
    assert 200 in answered
