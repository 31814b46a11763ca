"""The questions of one session tree: put once, answered by the first to come, and never left open.

Hooks ask through the kernel's `ApprovalSystem`, guards such as `hooks-approval` through an `ApprovalProvider`; both
end here. A question is answered from memory, by the application's approver, by `resolve`, by its time-out, or by the
cancellation of the turn. Everything happens on the event loop of the sessions, and waiting does not block it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Any

from amplifier_core.approval import ApprovalSystem, ApprovalTimeoutError
from amplifier_core.boundary import Boundary, TaskBoundary, settle
from amplifier_core.events import APPROVAL_REQUIRED
from amplifier_core.exceptions import describe
from amplifier_core.interfaces import ApprovalProvider, ApprovalRequest, ApprovalResponse
from amplifier_kit.concerns import find_pending_call
from amplifier_system.tasks import start_task
from amplifierd.exceptions import (
    ApprovalAlreadyResolvedError,
    ApprovalDecisionError,
    ApprovalExpiredError,
    ApprovalNotFoundError,
)

from .approval import DENY, Approval, ApprovalDecision, Approver, Remember, is_lasting
from .lasting_approvals import ApprovalMemory, LastingApprovals, Load, Save

__all__ = ["ApprovalQueue"]

APPROVAL_PENDING = "approval:pending"
APPROVAL_RESOLVED = "approval:resolved"
APPROVAL_EXPIRED = "approval:expired"

Emit = Callable[[str, dict[str, Any]], Any]

logger = logging.getLogger(__name__)

_FINISHED_KEPT = 1_000
_SLACK_S = 0.05  # one who asks may stop waiting a moment before the question itself expires


class _Question:
    """A question that waits."""

    def __init__(self, approval: Approval, began_at: float) -> None:
        loop = asyncio.get_running_loop()
        self.approval = approval
        self.answer: asyncio.Future[Approval] = loop.create_future()
        self._deadline = None if approval.timeout is None else began_at + approval.timeout
        self._timer = None if self._deadline is None else loop.call_at(self._deadline, self.expire)

    @property
    def is_late(self) -> bool:
        return self._deadline is not None and asyncio.get_running_loop().time() >= self._deadline - _SLACK_S

    def settle(self, answered: Approval) -> None:
        if not self.answer.done():
            self.answer.set_result(answered)

    def expire(self) -> None:
        self.settle(self.approval.expired())

    def fail_with(self, consulting: asyncio.Task[None]) -> None:
        """Raise where the question was asked what went wrong while an answer was taken, a full disk for instance."""
        error = None if consulting.cancelled() else consulting.exception()
        if error is not None and not self.answer.done():
            self.answer.set_exception(error)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class ApprovalQueue:
    """The questions of one session tree.

    `emit(event, data)` announces them. `load()` and `save(value)` reach the document `approvals` of the tree's root, in
    which "always" is kept; without them it holds as long as the queue. All three may return awaitables. `approver`
    answers for the application; without one a question waits for `resolve`. `lasting` is what outlives the session.
    """

    def __init__(
        self,
        session_id: str,
        *,
        emit: Emit,
        load: Load | None = None,
        save: Save | None = None,
        approver: Approver | None = None,
        lasting: LastingApprovals | None = None,
    ) -> None:
        self._session_id, self._emit, self._approver = session_id, emit, approver
        self._memory = ApprovalMemory(load, save, lasting)
        self._waiting: dict[str, _Question] = {}
        self._finished: OrderedDict[str, Approval] = OrderedDict()
        self._resolving = asyncio.Lock()

    def system(self, session_id: str | None = None) -> ApprovalSystem:
        """Return the kernel's approval system for one session of the tree, else for its root."""
        return _System(self, session_id or self._session_id)

    def provider(self, session_id: str | None = None) -> ApprovalProvider:
        """Return what `approval.register_provider` is handed in one session of the tree, else in its root."""
        return _Provider(self, session_id or self._session_id)

    def pending(self) -> tuple[Approval, ...]:
        """Return the questions that wait, the oldest first."""
        return tuple(question.approval for question in self._waiting.values())

    def all(self) -> tuple[Approval, ...]:
        """Return the latest questions with their answers, the oldest first, and those that wait."""
        return (*self._finished.values(), *self.pending())

    async def resolve(
        self, request_id: str, decision: str, *, reason: str | None = None, remember: Remember = False, by: str = "user"
    ) -> Approval:
        """Answer a question with `allow`, `deny` or one of its options, and return it with the answer.

        With `remember`, or an option that says "always", the answer stands for all like questions, those that wait
        included: of the tree, with `project` of all sessions in this directory, with `everywhere` of all sessions of
        the home. It is stored first: when that fails, the question still waits.

        Raises:
            ApprovalNotFoundError: there is no such question.
            ApprovalAlreadyResolvedError: it has its answer.
            ApprovalExpiredError: it was not answered in time.
            ApprovalDecisionError: the decision is not one of its options, or cannot be remembered that far.
            SettingsError: the home's list of lasting approvals cannot be written.
        """
        async with self._resolving:
            question = self._find(request_id)
            option = question.approval.chosen(decision, remember=remember)
            answered = question.approval.answered(option, reason=reason, by=by)
            is_kept = (remember or is_lasting(option)) and bool(answered.scopes)
            if is_kept:
                await self._memory.remember(answered, remember)
            self._find(request_id).settle(answered)
            if is_kept:
                await self._settle_alike()
        return answered

    def deny_all_pending(
        self, reason: str, *, by: str = "cancel", session_ids: Collection[str] | None = None
    ) -> tuple[Approval, ...]:
        """Deny every question that waits, or those of some sessions: their turns were cancelled, or we shut down."""
        denied = []
        for question in self._waiting.values():
            if session_ids is None or question.approval.session_id in session_ids:
                question.settle(question.approval.answered(question.approval.chosen(DENY), reason=reason, by=by))
                denied.append(question.approval)
        return tuple(denied)

    async def ask(self, approval: Approval, event: str) -> Approval:
        """Put a question, announced as `event`, and return it with its answer."""
        began_at = asyncio.get_running_loop().time()
        remembered = await self._memory.find(approval)
        if remembered is not None:
            return remembered
        question = self._waiting[approval.request_id] = _Question(approval, began_at)
        consulting: asyncio.Task[None] | None = None
        try:
            await self._publish(event, approval, _announcement(approval, event))
            if self._approver is not None:
                consulting = start_task(self._consult(self._approver, question))
                consulting.add_done_callback(question.fail_with)
            answered = await question.answer
        except BaseException as interruption:
            answered = _interrupted(question, interruption)
            raise
        finally:
            question.close()
            if consulting is not None:
                consulting.cancel()
            self._finish(answered)
            found = APPROVAL_EXPIRED if answered.status == "expired" else APPROVAL_RESOLVED
            await self._publish(found, answered, {"decision": answered.decision, "by": answered.by})
        return answered

    async def _consult(self, approver: Approver, question: _Question) -> None:
        """Have the approver answer."""
        approval = question.approval
        try:
            answer = await self._decision_of(approver, approval)
            await self.resolve(
                approval.request_id, answer.decision, reason=answer.reason, remember=answer.remember, by="approver"
            )
        except (ApprovalAlreadyResolvedError, ApprovalExpiredError):
            logger.debug("the approver's answer to %s came too late", approval.request_id)
        except ApprovalDecisionError as error:
            logger.warning("the approver's answer is a denial: %s", error)
            question.settle(approval.answered(approval.chosen(DENY), reason=_failure(error), by="approver"))

    async def _decision_of(self, approver: Approver, approval: Approval) -> ApprovalDecision:
        with TaskBoundary(logger, "approver %s failed, which is a denial: %s", type(approver).__name__) as boundary:
            answer = await settle(approver.decide(approval))
            if not isinstance(answer, ApprovalDecision):
                raise TypeError(f"it returned a {type(answer).__name__}, not an ApprovalDecision")
            return answer
        return ApprovalDecision(DENY, _failure(boundary.error))

    async def _settle_alike(self) -> None:
        """Answer the questions that wait and for which an answer stands now."""
        for question in tuple(self._waiting.values()):
            if not question.answer.done():
                remembered = await self._memory.find(question.approval)
                if remembered is not None:
                    question.settle(remembered)

    def _find(self, request_id: str) -> _Question:
        """Return a question that has no answer yet."""
        question = self._waiting.get(request_id)
        known = self._finished.get(request_id)
        if question is not None and not question.answer.done():
            return question
        if question is not None and not question.answer.cancelled() and question.answer.exception() is None:
            known = question.answer.result()
        if known is None and question is None:
            raise ApprovalNotFoundError(
                f"approval {request_id!r}: session {self._session_id} has no such request",
                hint="list those that wait; they have new ids after a restart",
            )
        if known is not None and known.status == "expired":
            raise ApprovalExpiredError(f"approval {request_id!r} expired; its default, {known.default}, was applied")
        outcome = f"as {known.decision!r} by {known.by}" if known is not None else "by the end of its turn"
        raise ApprovalAlreadyResolvedError(f"approval {request_id!r} was already resolved {outcome}")

    def _finish(self, answered: Approval) -> None:
        self._waiting.pop(answered.request_id, None)
        self._finished[answered.request_id] = answered
        if len(self._finished) > _FINISHED_KEPT:
            self._finished.popitem(last=False)

    async def _publish(self, event: str, approval: Approval, data: dict[str, Any]) -> None:
        with Boundary(logger, "%s could not be announced: %s", event):
            named = {"request_id": approval.request_id, "session_id": approval.session_id}
            await settle(self._emit(event, {**named, **data}))


class _System:
    """The queue as the kernel sees it."""

    def __init__(self, queue: ApprovalQueue, session_id: str) -> None:
        self._queue, self._session_id = queue, session_id

    async def request_approval(
        self,
        prompt: str,
        options: list[str],
        timeout: float,  # noqa: ASYNC109 - how long to wait for a person, not for the coroutine
        default: str,
    ) -> str:
        """Ask, and return the chosen option; raise `ApprovalTimeoutError`, on which the kernel applies `default`."""
        question = Approval.of_question(
            self._session_id, prompt, options, timeout=timeout, default=default, call=find_pending_call()
        )
        answered = _in_time(await self._queue.ask(question, APPROVAL_REQUIRED))
        return answered.option or ""


class _Provider:
    """The queue as a guard with rules of its own sees it; it remembers by itself, so the guard never has to."""

    def __init__(self, queue: ApprovalQueue, session_id: str) -> None:
        self._queue, self._session_id = queue, session_id

    async def request_approval(self, request: ApprovalRequest) -> ApprovalResponse:
        """Ask; raise `ApprovalTimeoutError`, on which the guard applies its default."""
        question = Approval.of_request(self._session_id, request, find_pending_call())
        answered = _in_time(await self._queue.ask(question, APPROVAL_PENDING))
        return ApprovalResponse(approved=answered.is_allowed, reason=answered.reason, remember=False)


def _in_time(answered: Approval) -> Approval:
    if answered.status == "expired":
        raise ApprovalTimeoutError(answered.reason)
    return answered


def _interrupted(question: _Question, interruption: BaseException) -> Approval:
    """Return what became of a question whose asker does not wait any longer."""
    approval = question.approval
    if question.is_late:
        return approval.expired()
    if isinstance(interruption, asyncio.CancelledError):
        return approval.answered(approval.chosen(DENY), reason="The turn was cancelled", by="cancel")
    return approval.answered(approval.chosen(DENY), reason=_failure(interruption), by="error")


def _announcement(approval: Approval, event: str) -> dict[str, Any]:
    known = {"tool_name": approval.tool_name, "tool_call_id": approval.tool_call_id}
    data = {
        **{name: value for name, value in known.items() if value is not None},
        "action": approval.action,
        "risk_level": approval.risk_level,
        "options": list(approval.options),
        "expires_at": approval.expires_at,
        "prompt": approval.prompt,
        "always_covers": approval.always_covers,
    }
    asked = {"timeout": approval.timeout, "default": approval.default}
    return {**data, **asked} if event == APPROVAL_REQUIRED else data


def _failure(error: BaseException | None) -> str:
    return f"Approval system error: {describe(error) if error is not None else 'no answer'}"
