"""The OpenAPI document: generated from the endpoints, with the problems that all of them share."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from .models import USUAL, Problem, problem_response

PUBLIC = frozenset({"/health", "/ready"})
_SCHEME = "token"


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the document of an application; made once."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        components = document.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        schemas["Problem"] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        components["securitySchemes"] = {_SCHEME: {"type": "http", "scheme": "bearer"}}
        for path, operations in document["paths"].items():
            for operation in operations.values():
                _complete(path, operation)
        app.openapi_schema = document
    return app.openapi_schema


def _complete(path: str, operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    for status in USUAL:
        if str(status) not in responses or status == 422:
            responses[str(status)] = problem_response(status)
    if path not in PUBLIC:
        operation["security"] = [{_SCHEME: []}]
