"""The stream of all events, asked for as nobody would: it goes on for ever, so only the beginning of it is read."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from world import World

from amplifierd.app import create_app

PATH = "/api/v1/events"
OURS = {"authorization", "cookie", "host", "content-length"}


def test_no_request_for_all_events_is_answered_by_a_failure(world: World) -> None:
    schema = schemathesis.openapi.from_dict(create_app(home=world.server.home).openapi())
    documented = next(each.statuses for each in world.operations if each.name == f"GET {PATH}")

    @settings(
        max_examples=20,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=schema[PATH]["GET"].as_strategy())
    def send(case: Any) -> None:
        sent = case.as_transport_kwargs(base_url=world.server.url)
        headers = {name: text for name, text in (sent.get("headers") or {}).items() if name.lower() not in OURS}
        query = urlencode(sent.get("params") or {}, doseq=True)
        answer = world.send("GET", f"{PATH}?{query}", **headers)
        assert answer.status in documented - {500}, answer.text

    send()
