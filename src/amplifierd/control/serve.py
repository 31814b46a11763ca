"""Serving a home in this process, until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from amplifier_core import __version__
from amplifier_system.startup import end_the_start
from amplifier_system.tasks import start_task
from amplifierd.app import create_app
from amplifierd.exceptions import SettingsError
from amplifierd.home import Home, open_home
from amplifierd.server.daemon import Daemon
from amplifierd.server.http.request_headers import TrustedProxies, peer_of
from amplifierd.server.log_files import DaemonLog
from amplifierd.server.run_file import serving, write_run_file
from amplifierd.settings_file import create_settings_file
from amplifierd.workers.orphans import end_old_workers

from .binding import Binding, bind, refuse_unsafe


def serve(home_dir: Path | None, config: Path | None, flags: Mapping[str, Any], *, insecure: bool, quiet: bool) -> None:
    """Serve a home until a signal ends it.

    Raises:
        SettingsError: a setting is invalid.
        HomeInUseError: another daemon serves the home.
        UnsafeBindError: strangers could reach it.
        PortInUseError: another program listens there.
        FormatUnsupportedError: a newer version wrote its store of sessions.
        StoreUnavailableError: the database of its sessions cannot be reached.
    """
    home = open_home(home_dir, overrides=flags, config_file=config)
    settings, paths = home.settings, home.paths
    refuse_unsafe(settings, insecure=insecure)
    with serving(paths) as incarnation:
        end_old_workers(paths)
        home.sessions.runtime.store.serve_as(incarnation)
        if config is None:
            create_settings_file(paths.settings_file)
        asyncio.run(home.sessions.runtime.store.check())
        secrets = home.sessions.runtime.secrets
        log = DaemonLog(
            paths.logs, secrets, level=settings.log_level, as_json=settings.log_json, echo=not quiet and _is_watched()
        )
        try:
            allow_many_files()
            binding = bind(settings)
            try:
                app = create_app(home=home, address=binding.url)
                app.state.daemon.settings_users.append(
                    lambda changed: log.write(level=changed.log_level, as_json=changed.log_json)
                )
                server = Server(
                    app,
                    find_tls=lambda: _tls_files(home),
                    on_started=lambda: _announce(home, binding, app.state.daemon.boot_id, quiet=quiet),
                )
                end_the_start()
                server.run(sockets=[binding.listener])
            finally:
                binding.close()
        finally:
            log.close()


def _tls_files(home: Home) -> tuple[Path, Path] | None:
    if home.settings.tls.mode == "off":
        return None
    from .certificates import tls_files  # cryptography, for those who want TLS

    return tls_files(home.settings, home.paths)


def _announce(home: Home, binding: Binding, boot_id: str, *, quiet: bool) -> None:
    write_run_file(
        home.paths,
        boot_id=boot_id,
        host=home.settings.host,
        port=binding.port,
        url=binding.url,
        uds=str(binding.uds) if binding.uds else None,
        version=__version__,
        options=_options(),
    )
    if not quiet:
        sys.stdout.write(f"amplifierd {__version__} serves {home.paths.home} at {binding.url}\n")
        sys.stdout.write(f"API: {binding.url}/docs; token: {home.paths.token_file}; stop with Ctrl-C\n")
        sys.stdout.write("the page: amplifier daemon open\n")
        sys.stdout.flush()


def _options() -> tuple[str, ...]:
    """Return what was written behind `serve`, which `restart` repeats."""
    return tuple(sys.argv[sys.argv.index("serve") + 1 :]) if "serve" in sys.argv else ()


def _is_watched() -> bool:
    return sys.stderr.isatty()


# Connections as the daemon takes them: so many from one address, and none that takes for ever over its request.


_MOST_FILES = 65_536


@dataclass(frozen=True)
class ConnectionBounds:
    """What connections are held to, together.

    More may be open from an address than requests may, so that who has too many of those is told and not cut off.
    `is_exempt` says of an address, a proxy's for example, that any number may come from it. `head_patience_s` is how
    long the first line and the headers of a request may take.
    """

    is_exempt: Callable[[str], bool] = lambda address: False
    max_per_address: int = 1280
    head_patience_s: float = 30.0
    _open: Counter[str] = field(default_factory=Counter)

    def admit(self, address: str) -> bool:
        """Count a connection unless there are too many."""
        if self._open[address] >= self.max_per_address and not self.is_exempt(address):
            return False
        self._open[address] += 1
        return True

    def let_go(self, address: str) -> None:
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


def bounded_protocol(bounds: ConnectionBounds) -> type[H11Protocol]:
    """Return uvicorn's protocol with these bounds."""

    class Protocol(_BoundedProtocol):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(bounds, *given, **named)

    return Protocol


class _BoundedProtocol(H11Protocol):
    def __init__(self, bounds: ConnectionBounds, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._bounds = bounds
        self._address: str | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        super().connection_made(transport)
        if self.client and not self._bounds.admit(self.client[0]):
            transport.abort()
            return
        self._address = self.client[0] if self.client else None
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address is not None:
            self._bounds.let_go(self._address)
        self._stop_watching()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_head()

    def _watch_head(self) -> None:
        """Begin to wait for a request, or stop when it has come."""
        if self._has_request():
            self._stop_watching()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self._bounds.head_patience_s, self._give_up)

    def _has_request(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _give_up(self) -> None:
        self._deadline = None
        if not self._has_request():
            self.transport.close()

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def allow_many_files() -> None:
    """Let the process have as many files and connections open as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


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
