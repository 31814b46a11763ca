"""The web server: uvicorn, on a socket that is bound already, stopped in the daemon's own order."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI

from amplifierd.daemon.daemon import Daemon
from amplifierd.http.client_address import TrustedProxies, peer_of

from .connections import ConnectionBounds, bounded_protocol

_LAST_ANSWERS_S = 5
_LARGEST_HEADERS = 64 * 1024
_KEEP_ALIVE_S = 75


class Server(uvicorn.Server):
    """Ends the daemon's turns and streams before the connections; a second signal hurries all of it."""

    def __init__(self, app: FastAPI, *, tls: tuple[Path, Path] | None, on_started: Callable[[], None]) -> None:
        self._daemon: Daemon = app.state.daemon
        proxies = TrustedProxies(self._daemon.home.settings.trusted_proxies)
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                proxy_headers=False,  # who is behind a proxy is decided by our own rules
                server_header=False,
                ws="none",
                lifespan="on",
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_LAST_ANSWERS_S,
                h11_max_incomplete_event_size=_LARGEST_HEADERS,
                http=bounded_protocol(ConnectionBounds(lambda address: proxies.has(peer_of({"client": (address, 0)})))),
                ssl_certfile=tls[0] if tls else None,
                ssl_keyfile=tls[1] if tls else None,
            )
        )
        self._on_started = on_started
        self._stopping: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets=sockets)
        self._on_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._loop is None:  # nothing has begun yet
            self.should_exit = True
        else:
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        else:
            self._daemon.hurry()

    async def _stop(self) -> None:
        try:
            await self._daemon.stop()
        finally:
            self.should_exit = True
