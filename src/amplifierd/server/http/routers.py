"""Routers whose routes are made once, when they are first asked for, and shared by every application of the process.

An application that includes a router makes all of its routes anew, a fifth of a second of work at the first request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.routing import compile_path

from amplifierd.store.json_lines import encoded_for_others

API = "/api/v1"


def root_router(prefix: str = "", **options: Any) -> APIRouter:
    """Return a router of routes that are not part of the API."""
    return APIRouter(prefix=prefix, default_response_class=JsonAnswer, **{"route_class": LateRoute, **options})


def api_router(prefix: str = "", **options: Any) -> APIRouter:
    """Return a router of routes below `/api/v1`."""
    return root_router(API + prefix, **options)


def add_routes(app: FastAPI, routers: Iterable[APIRouter]) -> None:
    """Let an application answer on the routes of routers, looked through in this order."""
    for router in routers:
        app.router.routes.extend(router.routes)


_making = threading.RLock()  # the description of all routes is made in a thread


class LateRoute(APIRoute):
    """A route that knows what it takes to find it. FastAPI makes the rest when something else of it is asked for."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self._options: dict[str, Any] | None = options
        self.path, self.endpoint = path, endpoint
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self.methods = {method.upper() for method in options.get("methods") or ("GET",)}

    def __getattr__(self, name: str) -> Any:
        with _making:
            options, self._options = self._options, None
            if options is not None:
                super().__init__(self.path, self.endpoint, **options)
        return self.__getattribute__(name)


class JsonAnswer(JSONResponse):
    """What endpoints answer with. Half of a character in one text, as models and tools write it, hides no answer."""

    def render(self, content: Any) -> bytes:
        return encoded_for_others(content)
