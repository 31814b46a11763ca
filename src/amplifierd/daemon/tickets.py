"""Tickets: single-use stand-ins for a token where none can be sent, such as the streams and the links of a browser."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from typing import Literal

from .callers import Caller

LIFETIME_S = 60
_MOST = 10_000

Purpose = Literal["stream", "login"]


class Tickets:
    """Tickets that were issued and not used; each is good for one purpose only, and all end with the process."""

    def __init__(self) -> None:
        self._issued: OrderedDict[str, tuple[float, Purpose, Caller]] = OrderedDict()

    async def issue(self, caller: Caller, purpose: Purpose) -> str:
        """Return a text that stands for the caller once, within a minute."""
        self._forget_old()
        ticket = secrets.token_urlsafe(32)
        self._issued[ticket] = (time.monotonic() + LIFETIME_S, purpose, caller)
        return ticket

    async def find(self, ticket: str, purpose: Purpose) -> Caller | None:
        """Return whom a ticket stands for, None when it was used, has expired or never was one of that purpose."""
        self._forget_old()
        _, given_for, caller = self._issued.get(ticket, (0.0, None, None))
        return caller if given_for == purpose else None

    async def redeem(self, ticket: str, purpose: Purpose) -> Caller | None:
        """Use a ticket up, and return whom it stands for."""
        caller = await self.find(ticket, purpose)
        if caller is not None:
            del self._issued[ticket]
        return caller

    def _forget_old(self) -> None:
        moment = time.monotonic()
        while self._issued:
            ends, _, _ = next(iter(self._issued.values()))
            if ends > moment and len(self._issued) < _MOST:
                return
            self._issued.popitem(last=False)
