"""Endpoints whose POST can be sent twice: `APIRouter(route_class=IdempotentRoute)` is all that a router needs."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from amplifier_core import llm_errors
from amplifier_system.tasks import read_outcome, start_task
from amplifierd.daemon.daemon import Daemon
from amplifierd.daemon.idempotency import StoredAnswer
from amplifierd.exceptions import RequestRefusedError
from amplifierd.live_sessions import SubmittedTurn
from amplifierd.problems import REFUSALS, find_problem
from amplifierd.turns.turn_queue import TurnKey

from .dependencies import requires
from .models import problems
from .problem_answers import error_answer
from .quick_route import QuickRoute

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

HEADER = "Idempotency-Key"
REPEATED = "idempotency-repeated"
"""The header of an answer that was kept from the first request with its key."""

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_KEPT_HEADERS = ("content-type", "location", "retry-after")
_PARAMETER = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "sent again with the same body within 24 hours, the request is answered as the first time",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[\x21-\x7e]+$"},
}

logger = logging.getLogger(__name__)


class IdempotentRoute(QuickRoute):
    """A route that answers a repeated POST as it did the first, also while the first is still at work.

    A stream cannot be repeated: its response needs an attribute `repeat`, the response that stands for it.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        if "POST" in (options.get("methods") or ()):
            options["responses"] = {**problems(409), **(options.get("responses") or {})}
            extra = options.get("openapi_extra") or {}
            options["openapi_extra"] = {**extra, "parameters": [*extra.get("parameters", ()), _PARAMETER]}
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()
        return _repeatable(handle, _scopes(self.dependant)) if "POST" in (self.methods or ()) else handle


class OutlastingRoute(IdempotentRoute):
    """A route whose work may outlast the client that it streams to. A repeat waits for the end of the work.

    Such a stream needs an attribute `whole`, which is awaited for the response that stands for it then. Requests that
    differ in one of the headers `told_apart_by` are not the same.
    """

    told_apart_by: tuple[str, ...] = ()

    def get_route_handler(self) -> Handler:
        handle, scopes = QuickRoute.get_route_handler(self), _scopes(self.dependant)
        names = self.told_apart_by

        async def handler(request: Request) -> Response:
            key = request.headers.get(HEADER)
            if key is None:
                return await handle(request)
            await _check(request, key, scopes)
            begun: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

            async def work() -> StoredAnswer:
                response = await _answered(handle, request)
                begun.set_result(response)
                whole: Awaitable[Response] | None = getattr(response, "whole", None)
                return _stored(response if whole is None else await whole)

            daemon: Daemon = request.app.state.daemon
            said = await _fingerprint(request, *(request.headers.get(name, "") for name in names))
            kept = start_task(daemon.idempotency.once(request.state.caller.owner, key, said, work))
            kept.add_done_callback(read_outcome)  # the caller may be gone by then
            await asyncio.wait((begun, kept), return_when=asyncio.FIRST_COMPLETED)
            return begun.result() if begun.done() else _repeated(kept.result()[0])

        return handler if "POST" in (self.methods or ()) else handle


class SubmittingRoute(IdempotentRoute):
    """A route that submits a turn. Where the queue keeps the keys of turns, the turn itself is what a repeat gets.

    The endpoint submits with `turn_key`, and says with `note_repeated` what became of it.
    """

    def get_route_handler(self) -> Handler:
        handle, repeatable = QuickRoute.get_route_handler(self), super().get_route_handler()
        scopes = _scopes(self.dependant)

        async def handler(request: Request) -> Response:
            daemon: Daemon = request.app.state.daemon
            key = request.headers.get(HEADER)
            if key is None or not daemon.turns.keeps_keys:
                return await repeatable(request)
            await _check(request, key, scopes)
            request.state.turn_key = TurnKey(request.state.caller.owner, key, await _fingerprint(request))
            response = await handle(request)
            if getattr(request.state, "is_repeated", False):
                response.headers[REPEATED] = "true"
            return response

        return handler


def turn_key(request: Request) -> TurnKey | None:
    """Return the key under which a request submits a turn."""
    key: TurnKey | None = getattr(request.state, "turn_key", None)
    return key


def note_repeated(request: Request, submitted: SubmittedTurn) -> None:
    """Have the answer say whether the turn was submitted before."""
    request.state.is_repeated = submitted.is_repeated


def _scopes(dependant: Dependant) -> list[requires]:
    """Return what an endpoint asks of its callers."""
    own = [dependant.call] if isinstance(dependant.call, requires) else []
    return [*own, *(scope for below in dependant.dependencies for scope in _scopes(below))]


def _repeatable(handle: Handler, scopes: Sequence[requires]) -> Handler:
    async def handler(request: Request) -> Response:
        key = request.headers.get(HEADER)
        if key is None:
            return await handle(request)
        await _check(request, key, scopes)
        first: list[Response] = []

        async def work() -> StoredAnswer:
            first.append(await _answered(handle, request))
            return _stored(getattr(first[0], "repeat", first[0]))

        daemon: Daemon = request.app.state.daemon
        owner, fingerprint = request.state.caller.owner, await _fingerprint(request)
        answer, was_kept = await daemon.idempotency.once(owner, key, fingerprint, work)
        if not was_kept:
            return first[0]
        return _repeated(answer)

    return handler


def _repeated(answer: StoredAnswer) -> Response:
    return Response(answer.body, answer.status, {**answer.headers, REPEATED: "true"})


async def _check(request: Request, key: str, scopes: Sequence[requires]) -> None:
    for scope in scopes:  # what was kept is for those who may ask for it now
        await scope(request)
    if not _KEY.fullmatch(key):
        message = f"{HEADER} has to have 1 to 255 visible ASCII characters"
        raise RequestRefusedError(message, code="malformed-request")


async def _answered(handle: Handler, request: Request) -> Response:
    """Return what the endpoint answers. A failure after something was done is an answer; a refusal is raised."""
    try:
        return await handle(request)
    except (RequestValidationError, HTTPException):
        raise
    except Exception as error:
        if find_problem(error).status in REFUSALS and not isinstance(error, llm_errors.LLMError):
            raise
        logger.exception("%s %s failed", request.method, request.url.path)
        return error_answer(request, error)


async def _fingerprint(request: Request, *headers: str) -> str:
    said = "\n".join((f"{request.method} {request.url.path}?{request.url.query}", *headers, ""))
    return hashlib.sha256(said.encode() + await request.body()).hexdigest()


def _stored(response: Response) -> StoredAnswer:
    headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
    return StoredAnswer(response.status_code, headers, bytes(response.body).decode())
