"""Connections as the daemon takes them: so many from one address, and none that takes for ever over its request."""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

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
