"""Tickets that every member of a cluster takes, each once, kept in its store."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from .callers import Caller
from .carried_caller import carried, read_carried
from .tickets import LIFETIME_S, Purpose
from .tokens import secret_hash

if TYPE_CHECKING:
    from amplifierd.session_store.postgres.shared_values import SharedValues

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
