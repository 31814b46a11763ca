"""What a session does at this moment: one thing at a time, and watchers are told when it changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from amplifierd.exceptions import ExecutionInProgressError, SessionStateError
from amplifierd.sessions.prompt_queue import PromptQueue
from amplifierd.sessions.questions.approvals import ApprovalQueue
from amplifierd.store.record import Activity, SessionState

from .announcements import STATUS
from .journal import Journal


class SessionStatus:
    """The status of one session of this process. `is_loaded` says whether its modules are."""

    def __init__(
        self,
        session_id: str,
        journal: Journal,
        *,
        state: Callable[[], SessionState],
        is_tainted: Callable[[], bool],
        approvals: ApprovalQueue,
        queue: PromptQueue,
    ) -> None:
        self.is_loaded = self.is_busy = self.is_cancelling = self.is_closed = False
        self._session_id, self._journal, self._state, self._is_tainted = session_id, journal, state, is_tainted
        self._approvals, self._queue = approvals, queue
        self._becomes_idle: asyncio.Future[None] | None = None  # when someone waits for it
        self._published: dict[str, Any] = {}

    @property
    def activity(self) -> Activity | None:
        """What it does; None while its modules are not loaded."""
        if self.is_busy:
            if self.is_cancelling:
                return "cancelling"
            waits = any(approval.session_id == self._session_id for approval in self._approvals.pending())
            return "waiting_approval" if waits else "executing"
        if self._queue.waiting_prompts:
            return "queued"
        return "idle" if self.is_loaded else None

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Keep everything else away from the conversation meanwhile.

        Raises:
            SessionStateError: the session is closed.
            ExecutionInProgressError: something else is at work.
        """
        if self.is_closed:
            raise closed(self._session_id)
        if self.is_busy:
            raise ExecutionInProgressError(
                f"session {self._session_id} is executing a turn", hint="wait for it, queue the prompt, or cancel it"
            )
        self.is_busy = True
        try:
            yield
        finally:
            self.is_busy = self.is_cancelling = False
            try:
                self.tell()
            finally:
                if self._becomes_idle is not None:
                    self._becomes_idle.set_result(None)
                    self._becomes_idle = None

    async def wait_until_idle(self) -> None:
        while self.is_busy:
            self._becomes_idle = self._becomes_idle or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._becomes_idle)

    def tell(self) -> None:
        """Tell `session:status` if it is not what was told last."""
        for event, status in self.news():
            self._journal.note(event, status)

    def news(self) -> list[tuple[str, dict[str, Any]]]:
        """Return `session:status` if it is not what was told last; the caller tells it."""
        status: dict[str, Any] = {"status": self._state(), "activity": self.activity}
        if self._is_tainted():
            status["tainted"] = True
        if status == self._published:
            return []
        self._published = status
        return [(STATUS, status)]


def closed(session_id: str) -> SessionStateError:
    return SessionStateError(f"session {session_id} is closed", hint="open it again with sessions.resume")
