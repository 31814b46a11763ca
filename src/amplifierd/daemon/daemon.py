"""The running daemon: everything that lives as long as the process, and its start and stop."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Literal

from amplifierd.home import Home
from amplifierd.workers.workers import Workers

from .audit import AuditLog
from .idempotency import IdempotencyKeys
from .operations import Operations
from .tickets import Tickets
from .tokens import Tokens

Phase = Literal["starting", "ready", "stopping"]


class Daemon:
    """One home, served. Nothing of it is global: several can be in one process."""

    def __init__(self, home: Home) -> None:
        self.operations = Operations()
        self.home = home if home.progress else home.with_progress(self.operations.report)
        self.live = Workers(self.home)
        self.boot_id = uuid.uuid4().hex
        self.phase: Phase = "starting"
        self.warnings: list[str] = []
        self.tokens = Tokens(home.paths, home.settings.auth.tokens)
        self.tickets = Tickets()
        self.idempotency = IdempotencyKeys(home.paths.idempotency)
        self.audit = AuditLog(home.paths.audit_file)
        self._started = time.monotonic()

    @property
    def uptime_seconds(self) -> float:
        return time.monotonic() - self._started

    async def start(self) -> None:
        """Come up; what fails on the way is a warning, and never keeps the server from answering."""
        if self.home.settings.auth.mode != "none":
            await asyncio.to_thread(self.tokens.ensure_first)
        await asyncio.to_thread(self.idempotency.load)
        await self.live.start()
        self.phase = "ready"

    async def stop(self) -> None:
        """Refuse new work, end what runs, and give back what is held."""
        self.phase = "stopping"
        await self.operations.stop()
        await self.live.stop()
        await self.idempotency.close()
        await self.home.sessions.close()
        self.audit.close()
