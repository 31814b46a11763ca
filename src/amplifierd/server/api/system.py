"""The daemon itself: is it there, is it ready, how is it, and what is it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import Field

from amplifier_core import __version__
from amplifier_core.packages import TYPE_TO_MOUNT_POINT
from amplifier_system.tasks import LoopState
from amplifierd.event_types import EVENT_TYPES
from amplifierd.exceptions import RequestRefusedError
from amplifierd.identifiers import MOUNT_TYPES
from amplifierd.server.daemon import Daemon, Phase
from amplifierd.server.http.dependencies import TheDaemon, requires
from amplifierd.server.http.models import Answer, Page, PageLimit, PageOffset, paged, problems
from amplifierd.server.http.page_files import documentation_page
from amplifierd.server.http.request_headers import read_headers, wants_html
from amplifierd.server.http.routers import JsonAnswer, api_router, root_router
from amplifierd.server.log_files import LOG_FILE, read_tail
from amplifierd.server.metrics import MEDIA_TYPE

unversioned = root_router(tags=["system"])
router = api_router(tags=["system"])

CAPABILITIES = ("idempotency", "operations", "streams", "approvals", "steering", "queue", "checkpoints", "replay")


class About(Answer):
    name: Literal["amplifierd"] = "amplifierd"
    version: str
    description: str
    docs: str
    openapi: str
    api_versions: list[str]


class Health(Answer):
    """`degraded` while a loop of the daemon fails and is started again; `degraded_loops` names them."""

    status: Literal["healthy", "degraded"] = "healthy"
    version: str
    uptime_seconds: float
    active_sessions: int
    degraded_loops: list[str]


class Readiness(Answer):
    ready: bool
    phase: Phase
    degraded_loops: list[str] = Field(default=[], description="left out where every loop runs")


class Counts(Answer):
    total: int
    error: int


class SessionCounts(Answer):
    total: int
    active: int
    executing: int


class ProfileCounts(Answer):
    total: int
    fresh: int
    stale: int
    invalid: int


class Status(Answer):
    status: Literal["running"] = "running"
    version: str
    uptime_seconds: float
    pid: int
    host: str
    port: int | None = None
    root_dir: str
    paths: dict[str, str]
    sessions: SessionCounts
    collections: Counts
    profiles: ProfileCounts
    queues: dict[str, int]
    loop_lag_ms: float
    warnings: list[str]


class Info(Answer):
    version: str
    core_version: str
    capabilities: list[str]
    module_types: list[str]
    mount_types: list[str]
    event_types: list[str]


class LogTail(Answer):
    path: str
    lines: list[str]


class WorkerInfo(Answer):
    """A process that runs sessions; `session_ids` are loaded in it."""

    worker_id: str
    pid: int
    status: Literal["ready", "blocked", "retiring"]
    serves: str
    sessions: int
    turns: int
    rss_bytes: int
    loop_lag_ms: float
    started_at: str
    session_ids: list[str]


class WorkerPage(Page):
    workers: list[WorkerInfo]


@unversioned.get("/", response_model=About, responses={303: {"description": "To the page, if the client accepts HTML"}})
async def about(request: Request) -> About | RedirectResponse:
    """Say what this is; a browser is redirected to the page."""
    if wants_html(read_headers(request.scope["headers"])):
        return RedirectResponse("/app/", status_code=303, headers={"Vary": "Accept"})
    await requires("read")(request)
    return About(
        version=__version__,
        description="Sessions of agents over HTTP and SSE",
        docs="/docs",
        openapi="/openapi.json",
        api_versions=["v1"],
    )


@unversioned.get("/health")
@router.get("/health", include_in_schema=False)
async def health(daemon: TheDaemon) -> Health:
    """Say that the daemon responds; touches neither disk nor locks."""
    degraded = [loop.name for loop in daemon.degraded_loops]
    return Health(
        status="degraded" if degraded else "healthy",
        version=__version__,
        uptime_seconds=daemon.uptime_seconds,
        active_sessions=daemon.live.loaded,
        degraded_loops=degraded,
    )


@unversioned.get(
    "/ready",
    response_model_exclude_defaults=True,
    responses={503: {"model": Readiness, "description": "Not yet, or no longer"}},
)
@router.get("/ready", response_model_exclude_defaults=True, include_in_schema=False)
async def ready(daemon: TheDaemon, response: Response) -> Readiness:
    """Say whether sessions can be created: 200 when they can, else 503 with the phase."""
    if daemon.phase != "ready":
        response.status_code = 503
    degraded = [loop.name for loop in daemon.degraded_loops]
    return Readiness(ready=daemon.phase == "ready", phase=daemon.phase, degraded_loops=degraded)


@unversioned.get("/openapi.json", include_in_schema=False)
@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> Response:
    """Describe the endpoints to a program."""
    return JsonAnswer(await asyncio.to_thread(request.app.openapi))


@unversioned.get("/docs", response_class=HTMLResponse)
@router.get("/docs", response_class=HTMLResponse, include_in_schema=False)
async def docs(request: Request) -> HTMLResponse:
    """Show the API documentation."""
    return HTMLResponse(documentation_page(await asyncio.to_thread(request.app.openapi)))


@router.get("/status", dependencies=[Depends(requires("read"))], responses=problems(409))
async def status(daemon: TheDaemon, request: Request) -> Status:
    """Show the state of the daemon: what it has, what it is doing, and warnings."""
    counted = await asyncio.to_thread(_counted, daemon)
    paths, server = daemon.home.paths, request.scope.get("server")
    return Status(
        version=__version__,
        uptime_seconds=daemon.uptime_seconds,
        pid=os.getpid(),
        host=daemon.home.settings.host,
        port=server[1] if server else None,
        root_dir=str(paths.home),
        paths={name: str(getattr(paths, name)) for name in ("config", "share", "cache", "state", "logs")},
        loop_lag_ms=daemon.loop_lag.last_s * 1000,
        **counted,
    )


@router.get("/info", dependencies=[Depends(requires("read"))])
async def info() -> Info:
    """List the features of this version."""
    return Info(
        version=__version__,
        core_version=__version__,
        capabilities=list(CAPABILITIES),
        module_types=sorted(TYPE_TO_MOUNT_POINT),
        mount_types=sorted({*MOUNT_TYPES, "agents"}),
        event_types=list(EVENT_TYPES),
    )


@router.get(
    "/metrics",
    response_class=Response,
    dependencies=[Depends(requires("read"))],
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems(404)},
)
async def metrics(daemon: TheDaemon) -> Response:
    """Return what the daemon counts, as Prometheus reads it; 404 unless `metrics.enabled` is set."""
    if not daemon.home.settings.metrics.enabled:
        raise RequestRefusedError("metrics are switched off (metrics.enabled)", code="not-found")
    return Response(daemon.metrics.text(), media_type=MEDIA_TYPE)


@router.get("/logs", dependencies=[Depends(requires("admin"))])
async def tail_log(
    daemon: TheDaemon, lines: Annotated[int, Query(ge=1, le=5000, description="how many, from the end")] = 200
) -> LogTail:
    """Show the end of the daemon's log, secrets masked."""
    path = daemon.home.paths.logs / LOG_FILE
    return LogTail(path=str(path), lines=await asyncio.to_thread(read_tail, path, lines))


@router.get("/workers", dependencies=[Depends(requires("admin"))])
async def list_workers(daemon: TheDaemon, limit: PageLimit = 100, offset: PageOffset = 0) -> WorkerPage:
    """List the processes that run sessions, and which sessions each has loaded."""
    part, facts = paged(_workers(daemon), limit, offset)
    return WorkerPage(workers=list(part), **facts)


def _workers(daemon: Daemon) -> list[WorkerInfo]:
    loaded: dict[str, list[str]] = {}
    for state in daemon.live.states():
        loaded.setdefault(state.worker_id, []).append(state.session_id)
    return [
        WorkerInfo(**asdict(worker), session_ids=sorted(loaded.get(worker.worker_id, ())))
        for worker in daemon.live.workers()
    ]


def _counted(daemon: Daemon) -> dict[str, Any]:
    home = daemon.home
    collections = home.collections.list()
    found = [profile.status for each in collections for profile in each.profiles]
    fresh, invalid = sum(each in ("fresh", "degraded") for each in found), found.count("invalid")
    executing = sum(state.activity != "idle" for state in daemon.live.states())
    issues = [str(issue) for issue in home.collections.warnings()]
    return {
        "sessions": SessionCounts(
            total=home.sessions.list(limit=1).total,
            active=home.sessions.list(limit=1, status="active").total,
            executing=executing,
        ),
        "collections": Counts(total=len(collections), error=sum(each.status == "error" for each in collections)),
        "profiles": ProfileCounts(total=len(found), fresh=fresh, invalid=invalid, stale=len(found) - fresh - invalid),
        "queues": {"subscribers": daemon.events.subscribers, "dropped": daemon.events.dropped},
        "warnings": [*daemon.warnings, *map(_loop_warning, daemon.degraded_loops), *issues],
    }


def _loop_warning(loop: LoopState) -> str:
    return f"the loop {loop.name!r} fails and is started again (restart {loop.restarts}): {loop.error}"
