"""The answers that stand for later questions: the document `approvals` of a session, and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from amplifier_core.boundary import settle
from amplifierd.session_store.record import now

from .approval import CRITICAL, Approval

logger = logging.getLogger(__name__)

DOCUMENT = "approvals"
FORMAT_VERSION = 1

Load = Callable[[], Any | Awaitable[Any]]
Save = Callable[[dict[str, Any]], Any]


class ApprovalMemory:
    """Answers by remember key, read from the document for every question and written with every new one.

    Without a document they live as long as this object.
    """

    def __init__(self, load: Load | None = None, save: Save | None = None) -> None:
        self._kept: dict[str, Any] | None = None
        self._load, self._save = load or (lambda: self._kept), save or self._keep

    async def find(self, approval: Approval) -> Approval | None:
        """Return the question with the answer that stands for it."""
        if approval.remember_key is None or approval.risk_level == CRITICAL:
            return None
        entry = (await self._decisions()).get(approval.remember_key)
        if not isinstance(entry, dict) or entry.get("option") not in approval.options:
            return None
        return approval.answered(entry["option"], reason=entry.get("reason"), by="remembered")

    async def remember(self, answered: Approval) -> None:
        """Let an answer stand for later questions with its key."""
        assert answered.remember_key is not None
        entry = {"option": answered.option, "reason": answered.reason, "by": answered.by, "at": now()}
        decisions = {**await self._decisions(), answered.remember_key: entry}
        await settle(self._save({"format_version": FORMAT_VERSION, "decisions": decisions}))

    async def _decisions(self) -> dict[str, Any]:
        match await settle(self._load()):
            case None:
                return {}
            case {"decisions": dict(decisions)}:
                return decisions
        logger.warning("the document %r of a session holds no decisions; every call is asked about again", DOCUMENT)
        return {}

    def _keep(self, document: dict[str, Any]) -> None:
        self._kept = document
