"""Routers whose routes are made once, when they are first asked for, and shared by every application of the process.

An application that includes a router makes all of its routes anew, a fifth of a second of work at the first request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, FastAPI

from .json_answer import JsonAnswer
from .late_route import LateRoute

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
