"""The answers that stand for later questions: the document `approvals` of a session, and the home's own list."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from amplifier_core.boundary import Boundary, settle
from amplifierd.exceptions import ApprovalDecisionError
from amplifierd.session_store.record import now

from .approval import ALLOW, CRITICAL, Approval, Remember
from .lasting_approvals import LastingApprovals

logger = logging.getLogger(__name__)

DOCUMENT = "approvals"
FORMAT_VERSION = 1
_REASONS = {"project": "Always approved in this project", "everywhere": "Always approved everywhere"}

Load = Callable[[], Any | Awaitable[Any]]
Save = Callable[[dict[str, Any]], Any]


class ApprovalMemory:
    """Answers by the keys of scopes, read from the document for every question and written with every new one.

    Without a document they live as long as this object. `lasting` has those that outlive the session.
    """

    def __init__(
        self, load: Load | None = None, save: Save | None = None, lasting: LastingApprovals | None = None
    ) -> None:
        self._lasting = lasting
        self._kept: dict[str, Any] | None = None
        self._load, self._save = load or (lambda: self._kept), save or self._keep

    async def find(self, approval: Approval) -> Approval | None:
        """Return the question with the answer that stands for it."""
        if not approval.scopes or approval.risk_level == CRITICAL:
            return None
        yes = approval.chosen(ALLOW, remember=True)
        approved = await self._approved_for_good(yes, only_everywhere=approval.only_everywhere)
        decisions = {} if approval.only_everywhere else await self._decisions()
        entries = [decisions.get(scope.key) or approved.get(scope.key) for scope in approval.scopes]
        answers = [
            approval.answered(entry["option"], reason=entry.get("reason"), by="remembered")
            for entry in entries
            if isinstance(entry, dict) and entry.get("option") in (*approval.options, yes)
        ]
        denied = next((answer for answer in answers if not answer.is_allowed), None)
        return denied or (answers[0] if len(answers) == len(entries) else None)

    async def remember(self, answered: Approval, remember: Remember = True) -> None:
        """Let an answer stand for later questions about calls of its scopes, as far as `remember` says.

        Raises:
            ApprovalDecisionError: a no, or an answer where there is no home, was to outlive the session.
            SettingsError: the home's list cannot be written.
        """
        if remember in ("project", "everywhere"):
            if self._lasting is None or not answered.is_allowed:
                raise ApprovalDecisionError(
                    f"approval {answered.request_id}: only a yes to a session of a home can outlive the session",
                    hint="answer with remember: session",
                )
            await asyncio.to_thread(self._lasting.add, answered.scopes, remember)
            return
        entry = {"option": answered.option, "reason": answered.reason, "by": answered.by, "at": now()}
        decisions = {**await self._decisions(), **{scope.key: entry for scope in answered.scopes}}
        await settle(self._save({"format_version": FORMAT_VERSION, "decisions": decisions}))

    async def _decisions(self) -> dict[str, Any]:
        match await settle(self._load()):
            case None:
                return {}
            case {"decisions": dict(decisions)}:
                return decisions
        logger.warning("the document %r of a session holds no decisions; every call is asked about again", DOCUMENT)
        return {}

    async def _approved_for_good(self, option: str, *, only_everywhere: bool) -> dict[str, Any]:
        if self._lasting is None:
            return {}
        with Boundary(logger, "what was approved for good does not count: %s", level=logging.ERROR):
            reaches = await asyncio.to_thread(self._lasting.read)
            counted = {key: reach for key, reach in reaches.items() if not only_everywhere or reach == "everywhere"}
            return {key: {"option": option, "reason": _REASONS[reach]} for key, reach in counted.items()}
        return {}

    def _keep(self, document: dict[str, Any]) -> None:
        self._kept = document
