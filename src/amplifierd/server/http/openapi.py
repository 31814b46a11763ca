"""The OpenAPI document: generated from the endpoints, with the problems that all of them share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema

from amplifierd.server.auth.callers import SCOPES

from .dependencies import requires
from .models import DESCRIPTIONS, USUAL, Problem, problem_response
from .problem_answers import OPENAI, OpenAIError
from .routers import API
from .session_paths import is_passed_on

PUBLIC = frozenset({"/health", "/ready", "/auth/login"})
_OF_PATHS = ((f"{API}/sessions/{{session_id}}", (404, 409)), (OPENAI, (409,)))
"""Problems of every path that begins so. A session may not be there, and what is read may be a newer version's."""

_SCHEME = "token"
_REF = "#/components/schemas/{model}"


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the document of an application; made once for all that have the same routes, which takes a second."""
    if app.openapi_schema is None:
        routes = [route for route in app.routes if isinstance(route, APIRoute)]
        known = tuple(map(id, routes))
        if known not in _MADE:
            _MADE[known] = (routes, _document(app, routes))
        app.openapi_schema = _MADE[known][1]
    return app.openapi_schema


_MADE: dict[tuple[int, ...], tuple[list[APIRoute], dict[str, Any]]] = {}
"""Documents by the ids of the routes that they tell of, which are kept so that no other route gets their id."""


def _document(app: FastAPI, routes: Sequence[APIRoute]) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=routes)
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = Problem.model_json_schema()
    schemas |= models_json_schema([(OpenAIError, "serialization")], ref_template=_REF)[1]["$defs"]
    components["securitySchemes"] = {_SCHEME: {"type": "http", "scheme": "bearer"}}
    scopes = {route.unique_id: _required_scopes(route.dependant) for route in routes}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _complete(method.upper(), path, operation, scopes.get(operation["operationId"], []))
    return document


def _required_scopes(dependant: Dependant) -> list[str]:
    found = {part.call.scope for part in dependant.dependencies if isinstance(part.call, requires)}
    return [max(found, key=SCOPES.index)] if found else []


def _complete(method: str, path: str, operation: dict[str, Any], scopes: list[str]) -> None:
    responses = operation["responses"]
    for status in (*USUAL, *_of_route(method, path)):
        if str(status) not in responses or status == 422:
            responses[str(status)] = problem_response(status)
    if path.startswith(OPENAI):
        responses |= {status: _openai_response(int(status)) for status in responses if int(status) >= 400}
    if path not in PUBLIC:
        operation["security"] = [{_SCHEME: scopes}]


def _of_route(method: str, path: str) -> Iterator[int]:
    """Yield the problems that a route shares with others."""
    for beginning, statuses in _OF_PATHS:
        if path.startswith(beginning):
            yield from statuses
    if is_passed_on(method, path):
        yield 502


def _openai_response(status: int) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": _REF.format(model=OpenAIError.__name__)}}}
    return {"description": DESCRIPTIONS[status], "content": content}
