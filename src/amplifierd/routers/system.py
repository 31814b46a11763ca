"""The daemon itself: is it there, is it ready, and what is it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import HTMLResponse

from amplifier_core import __version__
from amplifierd.daemon.metrics import MEDIA_TYPE
from amplifierd.http.dependencies import TheDaemon
from amplifierd.http.documentation import documentation_page

unversioned = APIRouter(tags=["system"])


@unversioned.get("/health")
async def health(daemon: TheDaemon) -> dict[str, Any]:
    """Say that the daemon answers; touches neither disk nor locks."""
    return {"status": "healthy", "version": __version__, "uptime_seconds": daemon.uptime_seconds}


@unversioned.get("/docs", response_class=HTMLResponse)
async def docs(request: Request) -> HTMLResponse:
    """Show the endpoints to a reader."""
    return HTMLResponse(documentation_page(request.app.openapi()))


@unversioned.get("/ready")
async def ready(daemon: TheDaemon, response: Response) -> dict[str, Any]:
    """Say whether sessions can be created: 200 when they can, else 503 with the phase."""
    if daemon.phase != "ready":
        response.status_code = 503
    return {"ready": daemon.phase == "ready", "phase": daemon.phase}


router = APIRouter(tags=["system"])


@router.get("/metrics", response_class=Response)
async def metrics(daemon: TheDaemon) -> Response:
    """Return what the daemon counts, as Prometheus reads it; 404 unless `metrics.enabled` is set."""
    if not daemon.home.settings.metrics.enabled:
        raise HTTPException(404, "metrics are switched off (metrics.enabled)")
    return Response(daemon.metrics.text(), media_type=MEDIA_TYPE)
