"""The real application on a free port of loopback, with real workers behind it, and clients that read its streams."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import uvicorn

from amplifierd import Home, open_home
from amplifierd.app import create_app
from amplifierd.server.auth.callers import Scope
from amplifierd.server.auth.tokens import Tokens

PATIENCE_S = 120.0


@dataclass
class RealServer:
    """A daemon that is served, and its home."""

    home: Home
    url: str
    daemon: Any
    loop: asyncio.AbstractEventLoop
    _clients: dict[str, httpx2.Client] = field(default_factory=dict)

    @property
    def token(self) -> str:
        return self.home.paths.token_file.read_text().strip()

    def client(self, scope: Scope = "admin", owner: str | None = None) -> httpx2.Client:
        """Return a client of its own name; an admin has the first token."""
        name = f"{scope}-{owner}"
        if name not in self._clients:
            token = self.token if scope == "admin" else Tokens(self.home.paths).create(name, scope, owner=owner)[1]
            headers = {"Authorization": f"Bearer {token}"}
            self._clients[name] = httpx2.Client(base_url=f"{self.url}/api/v1", headers=headers, timeout=PATIENCE_S)
        return self._clients[name]

    def stranger(self) -> httpx2.Client:
        """Return a client without a token."""
        return self._clients.setdefault("", httpx2.Client(base_url=f"{self.url}/api/v1", timeout=PATIENCE_S))

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


@contextmanager
def real_server(directory: Path, *, offline: bool = True, **settings: Any) -> Iterator[RealServer]:
    """Serve a home of its own until the block ends."""
    home = open_home(directory, overrides=settings, offline=offline)
    app = create_app(home=home)
    as_served: Any = {"ws": "none", "timeout_graceful_shutdown": 5, "h11_max_incomplete_event_size": 64 * 1024}
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", **as_served))
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        await server.serve()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        host, port = server.servers[0].sockets[0].getsockname()
        served = RealServer(home, f"http://{host}:{port}", app.state.daemon, loops[0])
        _wait_until_ready(served)
        yield served
        served.close()
        asyncio.run_coroutine_threadsafe(app.state.daemon.stop(), loops[0]).result(PATIENCE_S)
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)


def _wait_until_ready(served: RealServer) -> None:
    for _ in range(1200):
        if httpx2.get(f"{served.url}/ready").status_code == 200:
            return
        time.sleep(0.05)
    raise AssertionError("the daemon did not become ready")


@dataclass(frozen=True)
class SentEvent:
    """An event as a client reads it."""

    id: str | None
    event: str
    data: Mapping[str, Any]


def read_events(response: httpx2.Response, *, comments: list[str] | None = None) -> Iterator[SentEvent]:
    """Yield the events of a stream as they come."""
    fields: dict[str, str] = {}
    for line in response.iter_lines():
        if line.startswith(":"):
            if comments is not None:
                comments.append(line)
        elif line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif "data" in fields:
            yield SentEvent(fields.get("id"), fields["event"], json.loads(fields["data"]))
            fields = {}
        else:
            fields = {}


def plan(
    *script: Any,
    tools: bool | Sequence[str] = False,
    hooks: Any = (),
    orchestrator: str = "loop-streaming",
    **mock: Any,
) -> dict[str, Any]:
    """Return a plan whose model says these things, call by call."""
    provider = {"script": [*script], "on_exhausted": "canned", "tool_trigger": None, **mock}
    return {
        "session": {"orchestrator": {"module": orchestrator}, "context": {"module": "context-simple"}},
        "providers": [{"module": "provider-mock", "config": provider}],
        "tools": [{"module": name} for name in (("tool-filesystem",) if tools is True else tools or ())],
        "hooks": [*hooks],
        "agents": {},
    }
