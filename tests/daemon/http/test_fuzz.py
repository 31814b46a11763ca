"""Requests that nobody would write, made from the OpenAPI document: none is answered by a failure of the daemon, and
each with a status and a body that the document tells. `make fuzz` sends many more of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from .conftest import Served

EXAMPLES = int(os.environ.get("AMPLIFIER_FUZZ_EXAMPLES", "4"))
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
SLOW = {"/api/v1/validate/module"}
"""Each request starts a process."""

ENDLESS = {"/api/v1/events"}
"""A stream that is answered goes on until its reader goes away: see every_operation/test_all_events.py."""


@pytest.fixture(scope="module")
def served(serve: Callable[..., Served]) -> Served:
    """A daemon that may not look for anything elsewhere."""
    return serve(offline=True)


def test_no_request_is_answered_by_a_failure_or_by_something_untold(served: Served) -> None:
    schema = schemathesis.openapi.from_dict(served.app.openapi())
    operations = [each.ok() for each in schema.get_all_operations()]
    found = [attack(served, each) for each in operations if each.path not in ENDLESS]

    assert len(found) > 50
    assert not any(found), "\n\n".join(filter(None, found))


def attack(served: Served, operation: Any) -> str:
    """Send requests to one operation, and say which of them was answered wrongly; empty when none was."""

    @settings(
        max_examples=max(1, EXAMPLES // 8) if operation.path in SLOW else EXAMPLES,
        derandomize=EXAMPLES < 100,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def send(case: Any) -> None:
        sent = case.as_transport_kwargs(base_url="http://127.0.0.1:8420")
        client = served.client()  # its token may have been replaced
        headers = {**(sent.get("headers") or {}), "Authorization": client.headers["Authorization"]}
        answer = client.request(
            sent["method"],
            sent["url"],
            params=sent.get("params"),
            json=sent.get("json"),
            content=sent.get("data"),
            headers=headers,
            follow_redirects=False,
        )
        assert answer.status_code != 500, answer.text
        case.validate_response(answer, checks=CHECKS)

    try:
        send()
    except (AssertionError, ExceptionGroup) as error:
        return f"{operation.label}: {error!r}"
    return ""
