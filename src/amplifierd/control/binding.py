"""Where the daemon listens: bound before anything is announced, and never where strangers could use it."""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from amplifier_system.urls import is_loopback
from amplifierd.exceptions import PortInUseError, UnsafeBindError
from amplifierd.settings import Settings

_TRIES = 10
_BACKLOG = 2048


@dataclass(frozen=True)
class Binding:
    """A bound socket, and the address at which clients find it."""

    listener: socket.socket
    url: str
    uds: Path | None = None

    @property
    def port(self) -> int | None:
        return None if self.uds else self.listener.getsockname()[1]

    def close(self) -> None:
        """Stop listening, and leave no socket in the file system behind; what others put there is not touched."""
        self.listener.close()
        if self.uds is not None:
            self.uds.unlink(missing_ok=True)


def refuse_unsafe(settings: Settings, *, insecure: bool) -> None:
    """Make sure that clients who can reach the daemon must authenticate, and cannot be overheard.

    Raises:
        UnsafeBindError: strangers could use it, or read along.
    """
    if settings.uds is not None or is_loopback(settings.host):
        return
    if settings.auth.mode == "none":
        raise UnsafeBindError(
            f"anyone who can reach {settings.host} could use the daemon: auth.mode is none",
            hint="use --auth token, or listen on 127.0.0.1",
        )
    if settings.auth.mode == "proxy" and not settings.trusted_proxies:
        raise UnsafeBindError(
            "auth.mode is proxy, but trusted_proxies names none", hint="name the addresses of your proxy"
        )
    if settings.tls.mode == "off" and not insecure:
        raise UnsafeBindError(
            f"tokens and conversations would cross the network to {settings.host} in the clear",
            hint="use --tls auto or --tls manual; behind a proxy that speaks TLS, say --insecure",
        )


def bind(settings: Settings) -> Binding:
    """Bind the address that the settings name; a default port that is taken gives way to the next of ten.

    Raises:
        PortInUseError: another program listens there.
    """
    if settings.uds is not None:
        return Binding(_bind_path(settings.uds), f"http+unix://{settings.uds}", settings.uds)
    is_default = "port" not in settings.model_fields_set
    ports = range(settings.port, settings.port + _TRIES) if is_default else [settings.port]
    for port in ports:
        listener = _try_port(settings.host, port)
        if listener is not None:
            scheme = "http" if settings.tls.mode == "off" else "https"
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            return Binding(listener, f"{scheme}://{host}:{listener.getsockname()[1]}")
    tried = f"port {settings.port}" if len(ports) == 1 else f"ports {ports[0]} to {ports[-1]}"
    raise PortInUseError(f"{tried} of {settings.host} is taken", hint="name another with --port, or --port 0 for any")


def _try_port(host: str, port: int) -> socket.socket | None:
    """Return a socket that listens, None when the port is taken."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise _cannot_listen(host, port, error) from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise _cannot_listen(host, port, error) from error
    listener.setblocking(False)
    return listener


def _cannot_listen(host: str, port: int, error: OSError) -> PortInUseError:
    return PortInUseError(f"cannot listen on {host}:{port}: {error.strerror}", hint="name another --host")


def _bind_path(path: Path) -> socket.socket:
    """Return a Unix socket for its owner alone; what a dead daemon left there is removed."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
        with socket.socket(socket.AF_UNIX) as probe, suppress(ConnectionRefusedError, FileNotFoundError):
            probe.connect(str(path))
            raise PortInUseError(f"another program listens on {path}", hint="name another --uds")
        path.unlink(missing_ok=True)
    elif path.exists():
        raise PortInUseError(f"{path} is not a socket, and is left alone", hint="name another --uds")
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise PortInUseError(f"cannot listen on {path}: {error.strerror}", hint="name a shorter --uds") from error
    finally:
        os.umask(before)
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener
