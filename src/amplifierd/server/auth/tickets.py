"""Tickets: single-use stand-ins for a token where none can be sent, such as the streams and the links of a browser."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Literal

from .callers import Caller, carried, read_carried
from .tokens import secret_hash

if TYPE_CHECKING:
    from amplifierd.store.postgres.shared_values import SharedValues

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


KIND = "ticket"


class SharedTickets:
    """The same as `Tickets`."""

    def __init__(self, shared: SharedValues) -> None:
        self._shared = shared

    async def issue(self, caller: Caller, purpose: Purpose) -> str:
        """Return a text that stands for the caller once, within a minute."""
        ticket = secrets.token_urlsafe(32)
        value = {"purpose": purpose, "caller": carried(caller, "")}
        await self._shared.put(KIND, secret_hash(ticket), value, expires_in_s=LIFETIME_S)
        return ticket

    async def find(self, ticket: str, purpose: Purpose) -> Caller | None:
        """Return whom a ticket stands for, None when it was used, has expired or never was one of that purpose."""
        value = await self._shared.get(KIND, secret_hash(ticket))
        if not isinstance(value, dict) or value.get("purpose") != purpose:
            return None
        caller, _ = read_carried(str(value["caller"]))
        return caller

    async def redeem(self, ticket: str, purpose: Purpose) -> Caller | None:
        """Use a ticket up, and return whom it stands for."""
        caller = await self.find(ticket, purpose)
        return caller if caller is not None and await self._shared.delete(KIND, secret_hash(ticket)) else None
