"""Endpoints whose POST can be sent twice: `APIRouter(route_class=IdempotentRoute)` is all that a router needs."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import request_params_to_args
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute, serialize_response
from starlette.exceptions import HTTPException

from amplifier_core import llm_errors
from amplifier_system.tasks import read_outcome, start_task
from amplifierd.exceptions import RequestRefusedError
from amplifierd.problems import REFUSALS, find_problem
from amplifierd.server.daemon import Daemon
from amplifierd.server.idempotency import StoredAnswer
from amplifierd.turns.turn_queue import TurnKey
from amplifierd.workers.live_sessions import SubmittedTurn

from .dependencies import requires
from .models import problems
from .problem_answers import error_answer
from .routers import JsonAnswer, LateRoute

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

# Routes that take a short way through FastAPI: as it would answer, without what it does for endpoints of other
# kinds.
#
# Most of our endpoints take the daemon, the caller, parts of the path and a JSON body. For these, solving
# dependencies in general takes longer than the rest of a request. What is out of the ordinary, and every mistake in
# a request, is left to FastAPI, which answers it from the beginning.


_JSON, _REQUEST = "application/json", "request"
_UNUSUAL = ("query_params", "header_params", "cookie_params", "response_param_name", "background_tasks_param_name")
_UNUSUAL_ANSWER = (
    *("response_model_include", "response_model_exclude", "response_model_exclude_unset"),
    *("response_model_exclude_defaults", "response_model_exclude_none"),
)


class QuickRoute(LateRoute):
    """A route whose requests take the short way where there is one."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()
        return _quick(self, handle) if _is_ordinary(self) else handle


def _is_ordinary(route: APIRoute) -> bool:
    """True if an endpoint takes what most of ours take, and answers with JSON."""
    dependant, body = route.dependant, route.dependant.body_params
    answers_json = route.response_field is not None and not any(getattr(route, name) for name in _UNUSUAL_ANSWER)
    has_one_body = not body or (len(body) == 1 and route.body_field is body[0])
    has_nothing_else = not any(getattr(dependant, name) for name in _UNUSUAL)
    is_async = inspect.iscoroutinefunction(dependant.call)
    takes_requests = all(map(_takes_request, dependant.dependencies))
    return answers_json and has_one_body and has_nothing_else and is_async and takes_requests


def _takes_request(dependency: Dependant) -> bool:
    """True if a dependency takes the request and nothing else."""
    others = (*dependency.path_params, *dependency.body_params, *dependency.dependencies)
    has_nothing_else = not others and not any(getattr(dependency, name) for name in _UNUSUAL)
    return has_nothing_else and dependency.request_param_name == _REQUEST


def _quick(route: APIRoute, handle: Handler) -> Handler:
    """Return a handler for the requests that an endpoint is meant for; `handle` answers all others."""
    dependant, status = route.dependant, route.status_code or 200
    call: Any = dependant.call
    body = dependant.body_params[0] if dependant.body_params else None
    dependencies: list[tuple[str | None, Any]] = [(one.name, one.call) for one in dependant.dependencies]

    async def handler(request: Request) -> Response:
        values, errors = request_params_to_args(dependant.path_params, request.path_params)
        if body is not None:
            if request.headers.get("content-type") != _JSON:
                return await handle(request)
            try:
                given = json.loads(await request.body())
            except ValueError:
                return await handle(request)
            values[body.name], wrong = body.validate(given, {}, loc=("body",))
            errors = [*errors, *(wrong or ())]
        if errors:
            return await handle(request)
        if dependant.request_param_name is not None:
            values[dependant.request_param_name] = request
        for name, dependency in dependencies:
            solved = await dependency(request)
            if name is not None:  # one without a name is there for what it refuses
                values[name] = solved
        answer = await call(**values)
        if isinstance(answer, Response):
            return answer
        return JsonAnswer(await serialize_response(field=route.response_field, response_content=answer), status)

    return handler


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
