"""What requests and answers have in common: bodies that allow nothing unknown, pages of lists, problems."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Path, Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from amplifierd.server.auth.callers import Caller
from amplifierd.server.daemon import Daemon
from amplifierd.server.operations import Operations
from amplifierd.store.record import Activity, SessionRecord

from .problem_answers import MEDIA_TYPE

T = TypeVar("T")

MAX_PAGE = 1000
PageLimit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="how many at most")]
PageOffset = Annotated[int, Query(ge=0, le=2**31, description="how many to skip")]


class Body(BaseModel):
    """The body of a request; a field that is not known is refused, so that nothing is silently ignored."""

    model_config = ConfigDict(extra="forbid")


class Answer(BaseModel):
    """A part of an answer; built when it is first used, since a daemon has a hundred and is to be ready soon."""

    model_config = ConfigDict(from_attributes=True, defer_build=True)


class Page(Answer):
    """Part of a list: `total` counts all there is."""

    total: int
    limit: int
    offset: int
    has_more: bool


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["urn:amplifier:error:profile-not-found"])
    title: str
    status: int
    detail: str
    instance: str | None = None
    code: str = Field(description="a stable word", examples=["profile-not-found"])
    request_id: str | None = None
    retryable: bool = Field(description="whether trying again may help")
    retry_after_seconds: float | None = None
    hint: str | None = Field(default=None, description="what to do about it")
    errors: list[dict[str, Any]] | None = Field(default=None, description="invalid fields: loc, msg and type of each")
    issues: list[dict[str, Any]] | None = Field(
        default=None, description="broken rules: code, message, location, file, line, fix and severity of each"
    )


def paged(items: Sequence[T], limit: int, offset: int) -> tuple[Sequence[T], dict[str, Any]]:
    """Return the part of a list that was asked for, and what a `Page` says about it."""
    part = items[offset : offset + limit]
    return part, page_facts(len(items), len(part), limit, offset)


def page_facts(total: int, count: int, limit: int, offset: int) -> dict[str, Any]:
    """Return what a `Page` says of itself; `count` items are on it."""
    return {"total": total, "limit": limit, "offset": offset, "has_more": offset + count < total}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of an endpoint that may answer with problems of these statuses, beside the usual ones."""
    return {status: problem_response(status) for status in statuses}


def problem_response(status: int) -> dict[str, Any]:
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {"description": DESCRIPTIONS[status], "content": content}


DESCRIPTIONS = {
    400: "The request cannot be understood",
    401: "The caller is unknown",
    403: "The caller may not do this",
    404: "Not found",
    408: "The request did not come in time",
    409: "The current state does not allow it",
    410: "It is too late",
    413: "The request is too large",
    415: "The body is not JSON",
    422: "The request is not valid",
    429: "Too many requests",
    431: "The headers are too large",
    499: "The turn was cancelled",
    500: "The daemon failed",
    502: "Something that the daemon depends on failed",
    503: "Not now",
    504: "It took too long",
}

USUAL = (400, 401, 403, 408, 413, 415, 422, 429, 431, 500, 503)
"""Problems that any endpoint may answer with."""

# Sessions as clients see them.


LOADING = problems(502, 504)
"""The further answers of an endpoint that loads the modules of a session, which may have to be fetched."""

SessionId = Annotated[str, Path(max_length=200, description="the id of a session")]


class SessionInfo(SessionRecord):
    """A session; `activity` is what it does at this moment, null while its modules are not loaded."""

    activity: Activity | None = None


class SessionPage(Page):
    sessions: list[SessionInfo]


def shown(daemon: Daemon, record: SessionRecord, **more: Any) -> SessionInfo:
    """Return a session as it is answered."""
    state = daemon.live.state(record.session_id)
    return SessionInfo(**record.model_dump(), activity=state.activity if state else None, **more)


async def all_shown(daemon: Daemon, records: Collection[SessionRecord]) -> list[SessionInfo]:
    """Return sessions as they are answered, also those that other members have at work."""
    elsewhere = await daemon.elsewhere.states.of(records) if daemon.elsewhere is not None else {}
    infos = [shown(daemon, record) for record in records]
    return [
        info.model_copy(update={"activity": elsewhere[info.session_id].activity})
        if info.activity is None and info.session_id in elsewhere
        else info
        for info in infos
    ]


# Long work over HTTP: waited for as long as a request may take, else answered with where to look.


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
