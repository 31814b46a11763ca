"""Routes that take a short way through FastAPI: as it would answer, without what it does for endpoints of other kinds.

Most of our endpoints take the daemon, the caller, parts of the path and a JSON body. For these, solving dependencies in
general takes longer than the rest of a request. What is out of the ordinary, and every mistake in a request, is left to
FastAPI, which answers it from the beginning.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import request_params_to_args
from fastapi.routing import APIRoute, serialize_response

from .json_answer import JsonAnswer
from .late_route import LateRoute

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

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
    """Say whether an endpoint takes what most of ours take, and answers with JSON."""
    dependant, body = route.dependant, route.dependant.body_params
    answers_json = route.response_field is not None and not any(getattr(route, name) for name in _UNUSUAL_ANSWER)
    has_one_body = not body or (len(body) == 1 and route.body_field is body[0])
    has_nothing_else = not any(getattr(dependant, name) for name in _UNUSUAL)
    is_async = inspect.iscoroutinefunction(dependant.call)
    takes_requests = all(map(_takes_request, dependant.dependencies))
    return answers_json and has_one_body and has_nothing_else and is_async and takes_requests


def _takes_request(dependency: Dependant) -> bool:
    """Say whether a dependency takes the request and nothing else."""
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
