"""Long work over HTTP: waited for as long as a request may take, else answered with where to look."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Query
from fastapi.responses import JSONResponse

from amplifierd.daemon.callers import Caller
from amplifierd.daemon.operations import Operations

from .models import Answer, problems

WAIT_S = 60.0

Wait = Annotated[bool, Query(description="wait for the end, up to a minute; else 202 with an operation to look at")]


class Started(Answer):
    """Work that goes on; `GET /operations/{operation_id}` tells how far it is."""

    operation_id: str


STARTED: dict[int | str, dict[str, Any]] = {
    202: {"model": Started, "description": "The work continues"},
    **problems(409),
}
"""The further answers of an endpoint that is an operation."""

FETCHING: dict[int | str, dict[str, Any]] = {**STARTED, **problems(502, 504)}
"""The further answers of one that fetches from sources."""


async def operate(
    operations: Operations, kind: str, target: str, work: Callable[[], Awaitable[Any]], *, caller: Caller, wait: bool
) -> Any:
    """Start or join an operation, and return its result if it is there in time, else 202."""
    operation = operations.start(kind, target, work, caller=caller)
    if wait and await operations.wait(operation, WAIT_S):
        return operation.outcome()
    return JSONResponse({"operation_id": operation.id}, 202, {"Location": f"/api/v1/operations/{operation.id}"})
