"""Daemons to send requests to: one on loopback with real workers, and others in this process, whose clients come from
wherever a test wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient
from real_server import RealServer, real_server

from amplifierd import Home, open_home
from amplifierd.app import create_app
from amplifierd.server.auth.callers import Scope
from amplifierd.server.auth.tokens import Tokens
from amplifierd.workers import worker_pool

LOOPBACK = "127.0.0.1"


@dataclass
class Served:
    """A running application, and its home."""

    home: Home
    app: Any
    running: TestClient

    @property
    def token(self) -> str:
        return self.home.paths.token_file.read_text().strip()

    def token_of(self, scope: Scope, name: str | None = None, owner: str | None = None) -> str:
        """Make a named token."""
        return Tokens(self.home.paths).create(name or f"{scope}er", scope, owner=owner)[1]

    def client(self, token: str | None = "", *, peer: str = LOOPBACK, **headers: str) -> TestClient:
        """Return a client with a token, the first one unless told; it calls the daemon by its address."""
        token = self.token if token == "" else token
        own = {} if token is None else {"Authorization": f"Bearer {token}"}
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        base = f"http://{LOOPBACK}:8420"
        client = TestClient(self.app, base_url=base, client=(peer, 50_000), headers={**own, **given})
        client.portal = self.running.portal  # all requests on the event loop that the daemon runs on
        return client


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Served]]:
    """Serve a home of its own with the settings that are given, as long as the module's tests run."""
    with ExitStack() as stack:

        def serve(home_dir: Path | None = None, **settings: Any) -> Served:
            home = open_home(home_dir or tmp_path_factory.mktemp("served"), overrides=settings)
            app = create_app(home=home)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(worker_pool, "_SOON_S", 3600.0)  # no session runs here: no worker is prepared for one
                return Served(home, app, stack.enter_context(TestClient(app)))

        yield serve


@pytest.fixture(scope="module")
def served(serve: Callable[..., Served]) -> Served:
    """A daemon with default settings."""
    return serve()


@pytest.fixture(scope="module")
def client(served: Served) -> TestClient:
    """A client that may do everything."""
    return served.client()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A daemon on a port of loopback with workers, for all tests that can share one."""
    with real_server(tmp_path_factory.mktemp("home")) as served:
        yield served


@pytest.fixture
def admin(server: RealServer) -> httpx2.Client:
    return server.client()
