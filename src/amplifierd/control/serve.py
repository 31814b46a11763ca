"""Serving a home in this process, until it is told to stop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amplifier_core import __version__
from amplifier_system.garbage_collection import end_the_start
from amplifierd.app import create_app
from amplifierd.daemon.log_files import DaemonLog
from amplifierd.daemon.run_file import serving, write_run_file
from amplifierd.home import Home, open_home
from amplifierd.settings_file import create_settings_file
from amplifierd.workers.orphans import end_old_workers

from .binding import Binding, bind, refuse_unsafe
from .connections import allow_many_files
from .server import Server


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
