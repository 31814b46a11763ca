"""The questions of a session in a daemon, put to the approver here. The first answer counts, wherever it is from."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress

from amplifier_core.events import APPROVAL_REQUIRED
from amplifier_core.exceptions import AmplifierError
from amplifier_system.tasks import start_task
from amplifierd.exceptions import ApprovalAlreadyResolvedError, ApprovalExpiredError, ApprovalNotFoundError
from amplifierd.sessions.approval import Approval
from amplifierd.sessions.approvals import APPROVAL_EXPIRED, APPROVAL_PENDING, APPROVAL_RESOLVED
from amplifierd.sessions.approvers import Approver
from amplifierd.sessions.uncounted_usage import TURN_DONE

from .daemon_client import DaemonClient, Event

_TOO_LATE = (ApprovalAlreadyResolvedError, ApprovalExpiredError, ApprovalNotFoundError)
logger = logging.getLogger(__name__)


class RemoteApprovals:
    """Hears the events of a session, and has its questions answered by `approver`."""

    def __init__(self, client: DaemonClient, session_id: str, approver: Approver) -> None:
        self._client, self._path, self._approver = client, f"/sessions/{session_id}/approvals", approver
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._looking: set[asyncio.Task[None]] = set()

    def hear(self, event: Event) -> None:
        """Begin to ask when a question comes, and stop when it has its answer or its turn is over."""
        if event["event"] == TURN_DONE and self._asking:
            looking = start_task(self._withdraw(tuple(self._asking)))
            self._looking.add(looking)
            looking.add_done_callback(self._looking.discard)
        request_id = str((event.get("data") or {}).get("request_id") or "")
        if not request_id:
            return
        if event["event"] in (APPROVAL_REQUIRED, APPROVAL_PENDING):
            self.ask(request_id)
        elif event["event"] in (APPROVAL_RESOLVED, APPROVAL_EXPIRED) and request_id in self._asking:
            self._asking[request_id].cancel()

    def ask(self, request_id: str) -> None:
        """Have a question answered, once."""
        if request_id not in self._asking:
            task = self._asking[request_id] = start_task(self._answer(request_id))
            task.add_done_callback(lambda done: self._is_over(request_id, done))

    def _is_over(self, request_id: str, done: asyncio.Task[None]) -> None:
        self._asking.pop(request_id, None)
        if not done.cancelled() and (error := done.exception()) is not None:
            logger.warning("the question %s was not answered from here: %s", request_id, error, exc_info=error)

    async def _answer(self, request_id: str) -> None:
        pending = (await self._client.get(self._path))["pending"]
        asked = next((one for one in pending if one["request_id"] == request_id), None)
        if asked is None:
            return
        decided = await self._approver.decide(Approval.read(asked))
        body = {"decision": decided.decision, "reason": decided.reason, "remember": decided.remember}
        try:
            await self._client.post(f"{self._path}/{request_id}", body)
        except _TOO_LATE:
            return

    async def _withdraw(self, asked: Iterable[str]) -> None:
        """Stop asking what is no longer waited for: a process that was killed with its turn does not say so."""
        with suppress(AmplifierError):  # without a daemon nothing is known about them
            pending = {one["request_id"] for one in (await self._client.get(self._path))["pending"]}
            for request_id in asked:
                if request_id in self._asking and request_id not in pending:
                    self._asking[request_id].cancel()

    async def close(self) -> None:
        tasks = [*self._asking.values(), *self._looking]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
