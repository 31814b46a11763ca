"""The OpenAPI document is what the endpoints are: one handler per route, every parameter used, every status told."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import Counter
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts

from .conftest import Served

PUBLIC = {"/health", "/ready", "/auth/login"}
SECRET, NOTHING_MORE, NOTHING_CHANGES = "its answer is a secret", "done twice it is done once", "it changes nothing"
WITHOUT_KEY = {
    "/api/v1/auth/ticket": SECRET,
    "/api/v1/tokens": SECRET,
    "/auth/login": SECRET,
    "/auth/logout": NOTHING_MORE,
    "/api/v1/cluster/members/{member_id}/drain": NOTHING_MORE,
    "/api/v1/cluster/members/{member_id}/fence": NOTHING_MORE,
    "/api/v1/render": NOTHING_CHANGES,
    "/api/v1/validate/mount-plan": NOTHING_CHANGES,
    "/api/v1/validate/module": NOTHING_CHANGES,
    "/api/v1/validate/bundle": NOTHING_CHANGES,
}
"""Every POST that takes no `Idempotency-Key`, and why."""


def routes_of(app: FastAPI) -> list[APIRoute]:
    """Return the endpoints of an application, those of its routers included."""
    return [context.original_route for context in iter_route_contexts(app.routes)]


def test_a_route_has_one_handler(served: Served) -> None:
    handled = Counter(
        (method, path) for path, operations in served.app.openapi()["paths"].items() for method in operations
    )
    names = Counter(
        operation["operationId"]
        for operations in served.app.openapi()["paths"].values()
        for operation in operations.values()
    )

    assert max(handled.values()) == max(names.values()) == 1


def test_every_operation_tells_its_problems_and_whether_it_needs_a_token(served: Served) -> None:
    document = served.app.openapi()

    assert set(document["components"]["schemas"]["Problem"]["required"]) >= {"type", "status", "code", "detail"}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation.get("description"), (method, path)
            assert {"401", "403", "422", "500"} <= operation["responses"].keys(), (method, path)
            assert ("security" in operation) == (path not in PUBLIC), (method, path)
            if "{" in path and path.startswith("/api/"):
                assert "404" in operation["responses"], (method, path)


def test_every_post_takes_a_key_unless_there_is_a_reason(served: Served) -> None:
    without = {
        path
        for path, operations in served.app.openapi()["paths"].items()
        if "post" in operations
        and "Idempotency-Key" not in {each["name"] for each in operations["post"].get("parameters", ())}
    }

    assert without == WITHOUT_KEY.keys()


def test_every_declared_parameter_is_used(served: Served) -> None:
    unused, routes = [], routes_of(served.app)
    assert len(routes) >= len(served.app.openapi()["paths"])
    for route in routes:
        function = route.endpoint
        if not inspect.isfunction(function) or not function.__module__.startswith("amplifierd"):
            continue
        tree: Any = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        declared = set(inspect.signature(function).parameters) - {"caller"}  # asked for, it checks a scope
        unused += [f"{function.__name__}.{name}" for name in declared - used]

    assert unused == []


@pytest.mark.parametrize("path", ["/openapi.json", "/docs"])
def test_it_is_served(served: Served, path: str) -> None:
    assert served.client().get(path).status_code == 200
