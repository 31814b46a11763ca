"""Requests that nobody would write, to a daemon that has something of everything: none is answered by a failure, and
each with a status and a body that the OpenAPI document tells. `make fuzz` sends many more of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fastapi.testclient import TestClient
from fuzzing import EXAMPLES, Known, attack
from real_server import plan
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from .conftest import Served

CHECKS = [status_code_conformance, content_type_conformance]
API = "/api/v1"
SESSIONS = ("asked-a", "asked-b")
PROFILE = "---\nprofile: {name: asked, version: 1.0.0, schema_version: 2, extends: foundation/offline}\n---\n"
TRASHED = {"session_id": ("asked-c",)}
REFUSALS = {400, 401, 404, 422}
"""Statuses of requests that nothing came of, since what they are about was not understood, or is not there."""

SLOW = {f"{API}/validate/module"}
"""Each request starts a process."""

TAKING_AWAY = ("/truncate", "/undo", "/cleanup")
"""Paths of requests after which something may be gone, beside those that delete."""

ENDLESS = {f"{API}/events", f"{API}/sessions/{{session_id}}/stream"}
"""A stream that is answered goes on until its reader goes away: see every_operation/test_all_events.py."""


@pytest.fixture(scope="module")
def served(serve: Callable[..., Served]) -> Served:
    """A daemon that may not look for anything elsewhere."""
    return serve(offline=True, metrics={"enabled": True}, checkpoints={"timeout_seconds": 0.5})


def test_no_request_is_answered_by_a_failure_or_by_something_untold(served: Served, tmp_path: Path) -> None:
    schema = schemathesis.openapi.from_dict(served.app.openapi())
    operations = [each for each in (one.ok() for one in schema.get_all_operations()) if each.path not in ENDLESS]
    operations.sort(key=lambda each: each.path == f"{API}/settings")  # what it changes, all others would meet
    reached: dict[str, set[int]] = {}

    def send(case: Any) -> None:
        answer = answer_to(served, case)
        reached.setdefault(case.operation.label, set()).add(answer.status_code)
        assert answer.status_code != 500, answer.text
        is_stream = answer.headers.get("content-type", "").startswith("text/event-stream")
        case.validate_response(answer, checks=CHECKS if is_stream else [*CHECKS, response_schema_conformance])

    found, known = [], make_known(served, tmp_path)
    for each in operations:
        examples = max(1, EXAMPLES // 8) if each.path in SLOW else EXAMPLES
        is_about_trash = each.path.startswith(f"{API}/sessions/trash")
        found.append(attack(each, {**known, **(TRASHED if is_about_trash else {})}, send, examples=examples))
        if each.method == "delete" or each.path.endswith(TAKING_AWAY):
            known = make_known(served, tmp_path)

    assert not any(found), "\n\n".join(filter(None, found))
    assert sum(not statuses <= REFUSALS for statuses in reached.values()) > 100


def answer_to(served: Served, case: Any) -> Any:
    sent = case.as_transport_kwargs(base_url="http://127.0.0.1:8420")
    client = served.client()  # its token may have been replaced
    return client.request(
        sent["method"],
        sent["url"],
        params=sent.get("params"),
        json=sent.get("json"),
        content=sent.get("data"),
        headers={**(sent.get("headers") or {}), "Authorization": client.headers["Authorization"]},
        follow_redirects=False,
    )


def make_known(served: Served, place: Path) -> Known:
    """See to it that there is something of everything, and return its names."""
    client = served.client()
    (place / "asked/profiles").mkdir(parents=True, exist_ok=True)
    (place / "asked/profiles/other.md").write_text(PROFILE.replace("asked", "other"))
    for session_id in SESSIONS:
        make_session(client, place, session_id)
    if client.get(f"{API}/collections/asked").status_code == 404:
        body = {"identifier": "asked", "source": str(place / "asked"), "compile": False}
        assert client.post(f"{API}/collections", json=body).status_code == 201
    if client.get(f"{API}/profiles/local/asked").status_code == 404:
        assert client.post(f"{API}/profiles", json={"markdown": PROFILE}).status_code == 201
    if not client.get(f"{API}/sessions/trash").json()["total"]:
        client.delete(f"{API}/sessions/{make_session(client, place, *TRASHED['session_id'])}")
    if not client.get(f"{API}/sessions/{SESSIONS[0]}/turns").json()["total"]:
        client.post(f"{API}/sessions/{SESSIONS[0]}/execute", json={"prompt": "Hello", "auto_resume": True})
    return {
        "session_id": SESSIONS,
        "parent_session_id": SESSIONS,
        "profile_id": ["foundation/offline", "local/asked", "asked/other"],
        "profile_name": ["foundation/offline", "local/asked"],
        "profile": ["foundation/offline"],
        "model": ["foundation/offline"],
        "collection_id": ["asked", "foundation"],
        "collection": ["asked"],
        "module_id": ["tool-todo"],
        "operation_id": [one["id"] for one in client.get(f"{API}/operations").json()["operations"][:2]] or ["op_none"],
        "request_id": requests_of(client),
        "turn": ["1"],
    }


def make_session(client: TestClient, place: Path, session_id: str) -> str:
    body = {"mount_plan": plan(), "session_id": session_id, "working_dir": str(place)}
    assert client.post(f"{API}/sessions", json=body).status_code in (201, 409)  # it may be there
    return session_id


def requests_of(client: TestClient) -> list[str]:
    found = client.get(f"{API}/sessions/{SESSIONS[0]}/requests").json()["requests"]
    return [one["request_id"] for one in found[:1]] or ["none"]
