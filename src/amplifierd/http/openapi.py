"""The OpenAPI document: generated from the endpoints, with the problems that all of them share."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, iter_route_contexts
from pydantic.json_schema import models_json_schema

from amplifierd.daemon.callers import SCOPES

from .dependencies import requires
from .models import DESCRIPTIONS, USUAL, Problem, problem_response
from .openai_errors import OpenAIError
from .problem_answers import OPENAI

PUBLIC = frozenset({"/health", "/ready", "/auth/login"})
_SCHEME = "token"
_REF = "#/components/schemas/{model}"


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the document of an application; made once."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        components = document.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        schemas["Problem"] = Problem.model_json_schema()
        schemas |= models_json_schema([(OpenAIError, "serialization")], ref_template=_REF)[1]["$defs"]
        components["securitySchemes"] = {_SCHEME: {"type": "http", "scheme": "bearer"}}
        scopes = _scopes(app)
        for path, operations in document["paths"].items():
            for operation in operations.values():
                _complete(path, operation, scopes.get(operation["operationId"], []))
        app.openapi_schema = document
    return app.openapi_schema


def _scopes(app: FastAPI) -> dict[str, list[str]]:
    """Return the scope that each operation asks for; none where any caller will do."""
    contexts = (each for each in iter_route_contexts(app.routes) if isinstance(each.original_route, APIRoute))
    return {context.unique_id: _asked_for(context.dependant) for context in contexts}


def _asked_for(dependant: Dependant) -> list[str]:
    found = {part.call.scope for part in dependant.dependencies if isinstance(part.call, requires)}
    return [max(found, key=SCOPES.index)] if found else []


def _complete(path: str, operation: dict[str, Any], scopes: list[str]) -> None:
    responses = operation["responses"]
    for status in USUAL:
        if str(status) not in responses or status == 422:
            responses[str(status)] = problem_response(status)
    if path.startswith(OPENAI):
        responses |= {status: _openai_response(int(status)) for status in responses if int(status) >= 400}
    if path not in PUBLIC:
        operation["security"] = [{_SCHEME: scopes}]


def _openai_response(status: int) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": _REF.format(model=OpenAIError.__name__)}}}
    return {"description": DESCRIPTIONS[status], "content": content}
