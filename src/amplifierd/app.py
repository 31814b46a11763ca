"""The HTTP application of one daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from amplifier_core import __version__

from .daemon.daemon import Daemon
from .home import Home, open_home
from .http.authentication import Authentication
from .http.cross_site import CrossSite
from .http.json_answer import JsonAnswer
from .http.login_cookie import LoginCookie
from .http.openapi import describe
from .http.problem_answers import add_problem_answers
from .http.request_guard import RequestGuard
from .http.routers import add_routes
from .routers import (
    approvals,
    auth,
    bundles,
    cache,
    collections,
    directories,
    login,
    messages,
    modules,
    openai,
    operations,
    page,
    plans,
    profiles,
    rendering,
    session_builds,
    session_files,
    session_inside,
    session_trash,
    session_trees,
    sessions,
    streams,
    system,
    turns,
    validation,
)
from .routers import settings as settings_router
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
)


def create_app(settings: Settings | None = None, *, home: Home | None = None) -> FastAPI:
    """Return an application with a daemon of its own: several can be in one process.

    It serves `home`, else the home that the environment names, with `settings` in place of those it finds there. The
    daemon starts and stops with the application's lifespan.
    """
    served = home or open_home()
    if settings is not None:
        served = served.with_settings(settings)
    daemon = Daemon(served)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await daemon.start()
        try:
            yield
        finally:
            await daemon.stop()

    app = FastAPI(
        title="amplifierd",
        version=__version__,
        lifespan=lifespan,
        redirect_slashes=False,
        default_response_class=JsonAnswer,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    app.state.daemon = daemon
    app.state.login_cookie = LoginCookie(served.paths.home, served.settings, daemon.logins)
    app.openapi = lambda: describe(app)  # type: ignore[method-assign] # the way FastAPI documents
    add_problem_answers(app)
    app.add_middleware(
        RequestGuard,
        authentication=Authentication(served.settings, daemon.tokens, daemon.tickets, app.state.login_cookie),
        cross_site=CrossSite(served.settings),
        audit=daemon.audit,
        metrics=daemon.metrics,
    )
    add_routes(app, (module.router for module in _VERSIONED))
    add_routes(app, (system.unversioned, page.router, login.router, openai.router))
    return app
