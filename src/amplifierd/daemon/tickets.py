"""Tickets: single-use stand-ins for a token where none can be sent, such as the streams of a browser."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict

from .callers import Caller

LIFETIME_S = 60
_MOST = 10_000


class Tickets:
    """Tickets that were issued and not used; they end with the process."""

    def __init__(self) -> None:
        self._issued: OrderedDict[str, tuple[float, Caller]] = OrderedDict()

    def issue(self, caller: Caller) -> str:
        """Return a text that stands for the caller once, within a minute."""
        self._forget_old()
        ticket = secrets.token_urlsafe(32)
        self._issued[ticket] = (time.monotonic() + LIFETIME_S, caller)
        return ticket

    def redeem(self, ticket: str) -> Caller | None:
        """Return whom a ticket stands for, None when it was used, has expired or never was one."""
        self._forget_old()
        found = self._issued.pop(ticket, None)
        return found[1] if found else None

    def _forget_old(self) -> None:
        moment = time.monotonic()
        while self._issued:
            ends, _ = next(iter(self._issued.values()))
            if ends > moment and len(self._issued) < _MOST:
                return
            self._issued.popitem(last=False)
