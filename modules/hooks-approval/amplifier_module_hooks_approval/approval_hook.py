"""The guard before every tool call. Whatever goes wrong in it, the call does not run."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any

from amplifier_core import HookResult
from amplifier_core.approval import ApprovalTimeoutError
from amplifier_core.events import APPROVAL_DENIED, APPROVAL_GRANTED, APPROVAL_REQUIRED, TOOL_PRE
from amplifier_core.interfaces import ApprovalProvider, ApprovalRequest
from amplifier_core.tool_interception import is_covered
from amplifier_core.utils import json_safe
from amplifier_kit.approval import ApprovalGate, find_gate, is_asked_afterwards, own_copy
from amplifier_kit.asked_call import AskedCall, asking_about, shown_details
from amplifier_kit.consent import Consent, Consents
from amplifier_kit.mounting import find_capability, hook_registry, session_id_of
from amplifier_kit.tools.effects import effects_of

from .audit import audit_log
from .config import MODULE_ID, ApprovalSettings, check_auto_action
from .execution_guard import ExecutionGuard
from .policy import needs_approval
from .verdict import GuardedCall, Source, Verdict

logger = logging.getLogger(__name__)

SCRUB = "redaction.scrub"

_LONGEST_UNDERSTOOD = 65_536
_TOLD = ("tool_call_id", "parallel_group_id", "session_id")
_NOT_NEEDED = Verdict(True, "No approval needed", "config")
_BY_A_PERSON = frozenset({"provider", "remembered"})


class ApprovalHook:
    """Decides whether a tool may run: by policy and rules, from memory, or by asking an approval provider.

    The kernel goes on when a handler raises, so nothing is raised here: every error is a denial. A turn that is
    cancelled meanwhile is a denial too; the kernel itself passes the cancellation on. An interrupt of the process is
    raised, since the kernel lets it pass: the turn ends, and the call does not run.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, hooks: Any = None, coordinator: Any = None) -> None:
        self.settings = ApprovalSettings.read(config)
        self._hooks = hooks if hooks is not None else hook_registry(coordinator)
        self._coordinator = coordinator
        self._provider: ApprovalProvider | None = None
        self._remembered: dict[str, Verdict] = {}
        self._one_at_a_time = asyncio.Lock()
        self._outer_gate = find_gate(coordinator)
        self.consents = Consents()
        self.execution = ExecutionGuard(self.gate, self.needs_approval, self._hooks)

    def register_provider(self, provider: ApprovalProvider) -> None:
        """Have `provider` asked from now on."""
        self._provider = provider

    async def handle_tool_pre(self, event: str, data: dict[str, Any]) -> HookResult:
        """Answer `tool:pre`: `continue` for a call that may run, else `deny`.

        Where the loop asks the gate itself, after the last handler, nothing is decided here.
        """
        if is_asked_afterwards(self.gate):
            return HookResult()
        try:
            return await self._answer(data)
        except BaseException as exc:  # noqa: BLE001 - a failure is a denial
            return HookResult(action="deny", reason=_failed(exc).reason)

    async def _answer(self, data: Mapping[str, Any]) -> HookResult:
        if isinstance(data, Mapping) and "tool_input" in data:
            data = {**data, "tool_input": own_copy(data["tool_input"])}
        verdict = await self._verdict(data)
        if verdict is None:
            call = GuardedCall.read(data, self._coordinator)
            if not is_covered(call.tool):
                return self._question(self._request(call))
            # A loop could ignore the question, and its answer would not be known when the tool runs.
            verdict = await self._ask_application(call)
        if verdict.approved and self._outer_gate is not None:
            verdict = await self._ask_outer(self._outer_gate, data)
        if not verdict.approved:
            return HookResult(action="deny", reason=verdict.reason)
        self.execution.expect(data, self._coordinator)
        return HookResult()

    async def gate(self, tool_name: str, frozen_input: dict[str, Any], call: Mapping[str, Any]) -> Verdict:
        """Decide about a call whose input is final; the capability `approval.gate`."""
        data = {**call, "tool_name": tool_name, "tool_input": frozen_input}
        verdict = await self._verdict(data)
        if verdict is None:
            verdict = await self._ask_application(GuardedCall.read(data, self._coordinator))
        if verdict.approved and self._outer_gate is not None:
            return await self._ask_outer(self._outer_gate, data)
        return verdict

    async def _ask_outer(self, gate: ApprovalGate, data: Mapping[str, Any]) -> Verdict:
        """Let the session around this one decide; what it says counts here too."""
        try:
            call = GuardedCall.read(data, self._coordinator)
            told = {"tool_obj": call.tool, **{key: data[key] for key in _TOLD if data.get(key) is not None}}
            given: Any = data.get("tool_input")
            answer = await gate(call.tool_name, given, told)
            source: Source = "provider" if getattr(answer, "source", None) in _BY_A_PERSON else "config"
            verdict = Verdict(answer.approved is True, answer.reason, source)
        except BaseException as exc:  # noqa: BLE001 - a failure is a denial
            return _failed(exc)
        if verdict.approved:
            self._note(call, verdict)
        return verdict

    async def _verdict(self, data: Mapping[str, Any]) -> Verdict | None:
        """Return the decision about a call; None leaves it to the application's approval system."""
        try:
            call = GuardedCall.read(data, self._coordinator)
            if not await needs_approval(call, self.settings, self._coordinator):
                verdict: Verdict | None = _NOT_NEEDED
            elif self._outer_gate is not None and not self._is_denied_by_rule(call):
                return Verdict(True, "The outer session decides", "config")
            else:
                verdict = await self._judge(call, self._request(call))
        except BaseException as exc:  # noqa: BLE001 - the kernel would go on, and the tool would run
            return _failed(exc)
        if verdict is not None and verdict.approved:
            self._note(call, verdict)
        return verdict

    async def needs_approval(self, call: GuardedCall) -> bool:
        """Say whether policy, rules or the tool itself want someone to be asked."""
        return await needs_approval(call, self.settings, self._coordinator)

    def _note(self, call: GuardedCall, verdict: Verdict) -> None:
        """Let the tool know whether this call was approved."""
        consent = Consent.APPROVED if verdict.source in _BY_A_PERSON else Consent.UNASKED
        self.consents.note(call.identity, call.tool_input, consent)

    async def _ask_application(self, call: GuardedCall) -> Verdict:
        """Ask through the session's own approval system."""
        process = getattr(self._coordinator, "process_hook_result", None)
        if process is None:
            return Verdict(False, "No approval provider available", "error")
        try:
            request = self._request(call)
            with asking_about(self._described(call, request)):
                answer = await process(self._question(request), TOOL_PRE, MODULE_ID)
        except BaseException as exc:  # noqa: BLE001 - a failure is a denial
            return _failed(exc)
        if getattr(answer, "action", None) != "continue":
            return Verdict(False, getattr(answer, "reason", None) or "User denied approval", "provider")
        verdict = Verdict(True, "User approved", "provider")
        self._note(call, verdict)
        return verdict

    def _is_denied_by_rule(self, call: GuardedCall) -> bool:
        return check_auto_action(self.settings.rules, call.identity, call.tool_input) == "auto_deny"

    def _request(self, call: GuardedCall) -> ApprovalRequest:
        return ApprovalRequest(
            tool_name=call.tool_name,
            action=call.action,
            details=json_safe(call.tool_input),
            risk_level=call.risk_level,
            timeout=self.settings.default_timeout_s,
        )

    async def _judge(self, call: GuardedCall, request: ApprovalRequest) -> Verdict | None:
        announcement = {"action": request.action, "risk_level": request.risk_level}
        try:
            await self._emit(APPROVAL_REQUIRED, call, announcement)
            verdict = await self._decide(call, request)
        except BaseException as exc:  # noqa: BLE001 - a failure is a decision, to be audited like any other
            verdict = _failed(exc)
        if verdict is None:
            return None
        verdict = self._audited(call, request, verdict)
        try:
            await self._emit(
                APPROVAL_GRANTED if verdict.approved else APPROVAL_DENIED, call, {"reason": verdict.reason}
            )
        except BaseException as exc:  # noqa: BLE001 - what could not be announced is taken back
            failure = _failed(exc)
            verdict = self._audited(call, request, failure) if verdict.approved else verdict
        return verdict

    async def _decide(self, call: GuardedCall, request: ApprovalRequest) -> Verdict | None:
        """Return the first decision there is; None leaves it to the application's approval system."""
        by_rule = check_auto_action(self.settings.rules, call.identity, call.tool_input)
        if by_rule == "auto_deny":
            return Verdict(False, "Auto-denied by rule", "rule")
        if self._must_be_asked(call, request):
            return await self._prompt(call, request, key=None)
        key = call.remember_key if self.settings.remember else None
        if (remembered := self._remembered.get(key or "")) is not None:
            return remembered
        if by_rule == "auto_approve":
            return Verdict(True, "Auto-approved by rule", "rule")
        if self.settings.auto_approve:
            return Verdict(True, "Auto-approved by configuration", "config")
        return await self._prompt(call, request, key=key)

    def _must_be_asked(self, call: GuardedCall, request: ApprovalRequest) -> bool:
        command = call.command.casefold()
        return (
            not call.is_well_formed
            or request.risk_level == "critical"
            or len(call.command.encode("utf-8", "surrogatepass")) > _LONGEST_UNDERSTOOD
            or any(pattern in command for pattern in self.settings.patterns)
        )

    async def _prompt(self, call: GuardedCall, request: ApprovalRequest, *, key: str | None) -> Verdict | None:
        async with self._one_at_a_time:
            if key is not None and key in self._remembered:
                return self._remembered[key]
            if self._is_turn_cancelled():
                return Verdict(False, "The turn was cancelled", "error")
            if self._provider is None:
                if self.settings.ask_user_fallback and not self.settings.audit.required:
                    return None
                return Verdict(False, "No approval provider available", "error")
            with asking_about(self._described(call, request)):
                verdict = await self._ask(self._provider, request)
            if verdict.approved and self._is_turn_cancelled():
                return Verdict(False, "The turn was cancelled", "error")
            if key is not None and verdict.remember:
                self._remembered[key] = Verdict(verdict.approved, verdict.reason, "remembered", remember=True)
            return verdict

    async def _ask(self, provider: ApprovalProvider, request: ApprovalRequest) -> Verdict:
        task = asyncio.current_task()
        cancellations = task.cancelling() if task is not None else 0
        deadline = asyncio.timeout(request.timeout)
        is_late = False
        try:
            async with deadline:
                response = await provider.request_approval(request)
        except ApprovalTimeoutError:
            is_late = True
        except TimeoutError:
            if not deadline.expired():  # a failure of the provider's own
                raise
            is_late = True
        if is_late or deadline.expired():  # some providers answer although they were stopped
            return Verdict(self.settings.continues_on_timeout, "Approval request timed out", "timeout")
        if task is not None and task.cancelling() > cancellations:
            raise asyncio.CancelledError("the turn was cancelled")
        return Verdict.of(response)

    def _described(self, call: GuardedCall, request: ApprovalRequest) -> AskedCall:
        is_memorable = self.settings.remember and not self._must_be_asked(call, request)
        return AskedCall(
            tool_name=call.tool_name,
            identity=call.identity,
            action=request.action,
            risk_level=request.risk_level,
            effects=effects_of(call.tool, call.identity, call.tool_input),
            remember_key=call.remember_key if is_memorable else None,
            tool_call_id=call.tool_call_id,
            session_id=call.session_id or session_id_of(self._coordinator),
            default="allow" if self.settings.continues_on_timeout else "deny",
        )

    def _question(self, request: ApprovalRequest) -> HookResult:
        question = HookResult(
            action="ask_user",
            approval_prompt=f"{request.action} (risk: {request.risk_level}){shown_details(request)}",
            approval_default="allow" if self.settings.continues_on_timeout else "deny",
        )
        return (
            question if request.timeout is None else question.model_copy(update={"approval_timeout": request.timeout})
        )

    def _audited(self, call: GuardedCall, request: ApprovalRequest, verdict: Verdict) -> Verdict:
        """Record the decision; if that is required, an approval that cannot be recorded does not count."""
        audit = self.settings.audit
        is_written = not audit.enabled or audit_log(
            request,
            verdict.response,
            audit.file,
            session_id=call.session_id or session_id_of(self._coordinator),
            tool_call_id=call.tool_call_id,
            source=verdict.source,
            scrub=find_capability(self._coordinator, SCRUB),
        )
        if audit.required and verdict.approved and not is_written:
            return Verdict(False, "The approval could not be written to the audit file", "error")
        return verdict

    def _is_turn_cancelled(self) -> bool:
        return getattr(getattr(self._coordinator, "cancellation", None), "is_cancelled", False) is True

    async def _emit(self, event: str, call: GuardedCall, payload: dict[str, Any]) -> None:
        if self._hooks is not None and hasattr(self._hooks, "emit"):
            await self._hooks.emit(event, {"tool_name": call.tool_name, **payload, "tool_call_id": call.tool_call_id})


def _failed(error: BaseException) -> Verdict:
    """Return the denial that an error amounts to; what ends the turn itself is raised."""
    if isinstance(error, GeneratorExit | KeyboardInterrupt):
        raise error
    with contextlib.suppress(Exception):  # not even a broken log opens the gate
        logger.error("hooks-approval: a tool call is denied because the guard failed", exc_info=error)
    return Verdict.failed(error)
