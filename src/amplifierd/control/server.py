"""The web server: uvicorn, on a socket that is bound already, stopped in the daemon's own order."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI

from amplifier_system.tasks import start_task
from amplifierd.daemon.daemon import Daemon
from amplifierd.exceptions import SettingsError
from amplifierd.http.client_address import TrustedProxies, peer_of

from .connections import ConnectionBounds, bounded_protocol

_LAST_ANSWERS_S = 5
_LARGEST_HEADERS = 64 * 1024
_KEEP_ALIVE_S = 75

RENEW_S = 24 * 3600.0
"""How often the certificate is looked at."""

logger = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """Ends the daemon's turns and streams before the connections; a second signal hurries all of it.

    `find_tls` returns certificate and key, None without TLS. It is asked again every day, so that a certificate that
    was replaced, or has to be, is shown to new connections without a restart.
    """

    def __init__(
        self, app: FastAPI, *, find_tls: Callable[[], tuple[Path, Path] | None], on_started: Callable[[], None]
    ) -> None:
        tls = find_tls()
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
        self._app, self._find_tls, self._on_started = app, find_tls, on_started
        self._renewing: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal ends it. Raises what kept the daemon from starting."""
        try:
            super().run(sockets)
        except SystemExit:
            if self._app.state.failure is not None:
                raise self._app.state.failure from None
            raise

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets=sockets)
        if self.config.ssl is not None:
            renewing = partial(self._renew_certificate, self.config.ssl)
            self._renewing = self._daemon.live.supervisor.start("certificate", renewing)
        self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        await super().shutdown(sockets=sockets)

    async def _renew_certificate(self, context: ssl.SSLContext) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                if (found := await asyncio.to_thread(self._find_tls)) is not None:
                    context.load_cert_chain(*found)
            except (SettingsError, OSError) as error:
                logger.warning("the certificate stays as it was: %s", error)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._loop is None:  # nothing has begun yet
            self.should_exit = True
        else:
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if self._stopping is None:
            self._stopping = start_task(self._stop())
        else:
            self._daemon.hurry()

    async def _stop(self) -> None:
        try:
            await self._daemon.stop()
        finally:
            self.should_exit = True
