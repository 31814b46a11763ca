"""The HTTP application of one daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from amplifier_core import __version__
from amplifier_core.exceptions import AmplifierError
from amplifierd.server.api import (
    auth,
    bundles,
    cache,
    cluster,
    collections,
    directories,
    login,
    modules,
    openai,
    operations,
    page,
    plans,
    profiles,
    rendering,
    system,
    validation,
)
from amplifierd.server.api import settings as settings_router
from amplifierd.server.api.sessions import (
    approvals,
    messages,
    session_builds,
    session_files,
    session_inside,
    session_trash,
    session_trees,
    sessions,
    streams,
    turns,
)
from amplifierd.server.daemon import Daemon
from amplifierd.server.http.authentication import Authentication
from amplifierd.server.http.cross_site import CrossSite
from amplifierd.server.http.login_cookie import LoginCookie
from amplifierd.server.http.openapi import describe
from amplifierd.server.http.problem_answers import add_problem_answers
from amplifierd.server.http.request_guard import RequestGuard
from amplifierd.server.http.routers import JsonAnswer, add_routes

from .cluster.cluster_token import find_cluster_token, token_check
from .home import Home, open_home
from .settings import Settings

_VERSIONED = (  # looked through in this order for every request: first what is asked for most
    turns,
    streams,
    session_trash,
    sessions,
    system,
    settings_router,
    auth,
    operations,
    collections,
    profiles,
    cache,
    plans,
    validation,
    modules,
    bundles,
    directories,
    rendering,
    approvals,
    messages,
    session_trees,
    session_inside,
    session_builds,
    session_files,
    cluster,
)


def create_app(settings: Settings | None = None, *, home: Home | None = None, address: str | None = None) -> FastAPI:
    """Return an application with a daemon of its own: several can be in one process.

    It serves `home`, else that of the settings, else the one that the environment names; `settings` stand for those
    that are found there. The daemon starts and stops with the application's lifespan. `address` is where it is reached,
    for other members of a cluster, unless the settings name another one.
    """
    served = home or open_home(settings.home if settings else None)
    if settings is not None:
        served = served.with_settings(settings)
    daemon = Daemon(served, address=address)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            await daemon.start()
        except AmplifierError as error:
            app.state.failure = error
            raise
        try:
            yield
        finally:
            await daemon.stop()
            await daemon.close()

    app = FastAPI(
        title="amplifierd",
        version=__version__,
        lifespan=lifespan,
        redirect_slashes=False,
        default_response_class=JsonAnswer,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.daemon, app.state.failure = daemon, None
    app.state.login_cookie = LoginCookie(_cookie_name(served), served.settings, daemon.credentials)
    cross_site = CrossSite(served.settings)
    daemon.settings_users += [cross_site.use, app.state.login_cookie.use]
    app.openapi = lambda: describe(app)  # type: ignore[method-assign] # the way FastAPI documents
    add_problem_answers(app)
    if not served.settings.store.is_files:
        from amplifierd.server.http.forwarding import (
            Forwarding,  # what sends requests, for who has someone to send them to
        )

        app.add_middleware(Forwarding, daemon=daemon)
    app.add_middleware(
        RequestGuard,
        authentication=Authentication(served.settings, daemon.credentials, app.state.login_cookie),
        cross_site=cross_site,
        audit=daemon.audit,
        metrics=daemon.metrics,
        find_channels=lambda: daemon.cluster.channels if daemon.cluster else None,
    )
    add_routes(app, (turns.submissions, *(module.router for module in _VERSIONED)))
    add_routes(app, (system.unversioned, page.router, login.router, auth.unversioned, rendering.unversioned))
    add_routes(app, (openai.router, cluster.unversioned))
    return app


def _cookie_name(home: Home) -> str:
    """Return what the daemons whose pages share a login have in common."""
    return str(home.paths.home) if home.settings.store.is_files else token_check(find_cluster_token(home.paths))
