"""The guard before every tool call. Whatever goes wrong in it, the call does not run."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any, Literal

from amplifier_core import HookResult
from amplifier_core.approval import ApprovalTimeoutError
from amplifier_core.boundary import Boundary, emit_quietly, settle
from amplifier_core.events import APPROVAL_DENIED, APPROVAL_GRANTED, APPROVAL_REQUIRED, TOOL_PRE
from amplifier_core.interfaces import ApprovalProvider, ApprovalRequest
from amplifier_core.tool_interception import is_covered
from amplifier_core.utils import json_safe
from amplifier_kit.approval import EACH_WRITE, ApprovalGate, Consent, Consents, find_gate, is_deferred, own_copy
from amplifier_kit.concerns import (
    CONCERN,
    LEDGER,
    SESSION_TAINTED,
    AskConcern,
    Concern,
    PendingCall,
    Scope,
    asking_about,
    question_text,
)
from amplifier_kit.mounting import find_capability, find_mounted, hook_registry, session_id_of, working_dir
from amplifier_kit.tools.effects import WRITE
from amplifier_kit.tools.permission_levels import PermissionLevel, is_edit_inside, narrowest, permissions_of

from .commands import BASH
from .config import MODULE_ID, ApprovalSettings, audit_log, check_auto_action
from .ledger import Agreements, Ledger, concerns_of_call
from .policy import NEEDS_CHECK, ExecutionGuard, needs_approval, says_yes
from .verdict import LEVEL, GuardedCall, Source, Verdict

logger = logging.getLogger(__name__)

SCRUB = "redaction.scrub"

_LONGEST_UNDERSTOOD = 65_536
_TOLD = ("tool_call_id", "parallel_group_id", "session_id")
_GO_ON = HookResult()
_NOT_NEEDED = Verdict(True, "No approval needed", "config")
_CONSENTS: Mapping[str | None, Consent] = {
    "provider": Consent.APPROVED,
    "remembered": Consent.REMEMBERED,
    "level": Consent.LEVEL,
}
_OF_OUTER: Mapping[str | None, Source] = {"provider": "provider", "remembered": "remembered", "level": "level"}
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
        self._outer_concern: AskConcern | None = find_capability(coordinator, CONCERN) if self._outer_gate else None
        self._permissions = permissions_of(coordinator)
        inherited = find_capability(coordinator, LEDGER)
        self.ledger = inherited if isinstance(inherited, Ledger) else Ledger()
        self._find_working_dir = partial(working_dir, coordinator)
        self._has_recalled = False
        self._agreements = Agreements(coordinator, self.ledger)
        self.consents = Consents()
        self.execution = ExecutionGuard(self.gate, self.needs_approval, self._hooks, self._note_result)

    def register_provider(self, provider: ApprovalProvider) -> None:
        """Have `provider` asked from now on."""
        self._provider = provider

    def forget(self, key: str) -> None:
        """Ask again about what an answer stood for; the capability `approval.forget`."""
        self._remembered.pop(key, None)
        self._agreements.forget(key)

    async def handle_tool_pre(self, event: str, data: dict[str, Any]) -> HookResult:
        """Answer `tool:pre`: `continue` for a call that may run, else `deny`.

        Where the loop asks the gate itself, after the last handler, nothing is decided here.
        """
        if is_deferred(self.gate):
            return _GO_ON
        try:
            return await self._answer(data)
        except BaseException as exc:  # noqa: BLE001 - a failure is a denial
            return HookResult(action="deny", reason=_failed(exc).reason)

    async def handle_prompt(self, event: str, data: dict[str, Any]) -> HookResult:
        """Take down what a person asks for; the prompt of a session inside another one is not a person's."""
        if not self._has_recalled:
            await self._recall()
        prompt = data.get("prompt") if isinstance(data, Mapping) else None
        if isinstance(prompt, str) and self._outer_gate is None and not getattr(self._coordinator, "parent_id", None):
            self.ledger.note_prompt(prompt)
        return HookResult()

    async def handle_tool_post(self, event: str, data: dict[str, Any]) -> HookResult:
        """Take down what a tool returned, where its running cannot be seen."""
        with Boundary(logger, "hooks-approval: a result could not be taken down: %s", level=logging.ERROR):
            call = GuardedCall.read(data, self._coordinator)
            result = data.get("tool_result", data.get("result"))
            if announcement := self._note_result(call.tool, call.identity, call.tool_input, result):
                await announcement
        return HookResult()

    def _note_result(self, tool: Any, identity: str, tool_input: Any, result: Any) -> Awaitable[None] | None:
        """Take down what a call returned; returns the announcement if that has tainted the session."""
        was_tainted = self.ledger.is_tainted
        self.ledger.note_result(tool, identity, tool_input, result, self._find_working_dir)
        return self._announce_taint(identity) if self.ledger.is_tainted and not was_tainted else None

    async def _announce_taint(self, identity: str | None) -> None:
        """Publish that the session became tainted, and by which tool's result; None where its history says so."""
        await emit_quietly(self._hooks, SESSION_TAINTED, {"tool_name": identity})

    async def _recall(self) -> None:
        """Take down what a session that is resumed has read, from its history, before its first turn."""
        self._has_recalled = True
        context = find_mounted(self._coordinator, "context")
        if not callable(getattr(context, "get_messages", None)):
            return
        with Boundary(logger, "hooks-approval: the history of the session could not be read: %s", level=logging.ERROR):
            messages = await settle(context.get_messages())
            tools = find_mounted(self._coordinator, "tools")
            find_tool = tools.get if isinstance(tools, Mapping) else lambda name: None
            was_tainted = self.ledger.is_tainted
            self.ledger.note_history(
                messages if isinstance(messages, list | tuple) else (),
                find_tool,
                self._find_working_dir,
            )
            if self.ledger.is_tainted and not was_tainted:
                await self._announce_taint(None)

    async def _answer(self, data: Mapping[str, Any]) -> HookResult:
        if isinstance(data, Mapping) and "tool_input" in data:
            data = {**data, "tool_input": own_copy(data["tool_input"])}
        call = GuardedCall.read(data, self._coordinator)
        call, verdict = await self._verdict(call)
        if verdict is None:
            if not is_covered(call.tool):
                return self._question(self._request(call), call)
            # A loop could ignore the question, and its answer would not be known when the tool runs.
            verdict = await self._ask_application(call)
        if verdict.approved and self._outer_gate is not None:
            verdict = await self._ask_outer(self._outer_gate, call, data)
        if not verdict.approved:
            return HookResult(action="deny", reason=verdict.reason)
        self.execution.expect(data, self._coordinator)
        return HookResult()

    async def gate(self, tool_name: str, frozen_input: dict[str, Any], call: Mapping[str, Any]) -> Verdict:
        """Decide about a call whose input is final; the capability `approval.gate`."""
        data = {**call, "tool_name": tool_name, "tool_input": frozen_input}
        try:
            guarded = GuardedCall.read(data, self._coordinator)
        except BaseException as exc:  # noqa: BLE001 - a failure is a denial
            return _failed(exc)
        guarded, verdict = await self._verdict(guarded)
        if verdict is None:
            verdict = await self._ask_application(guarded)
        if verdict.approved and self._outer_gate is not None:
            return await self._ask_outer(self._outer_gate, guarded, data)
        return verdict

    async def ask_about(self, concern: Concern, tool_name: str) -> Verdict:
        """Decide about what a tool meets only while it runs; the capability `approval.concern`."""
        call, verdict = await self._verdict(GuardedCall.of_concern(concern, tool_name))
        if verdict is None:
            verdict = await self._ask_application(call)
        if not verdict.approved or self._outer_gate is None:
            return verdict
        if self._outer_concern is None:
            return Verdict(False, f"{concern.words}, and the session around this one cannot be asked", "error")
        try:
            answer = await self._outer_concern(concern, tool_name)
            return Verdict(answer.approved is True, answer.reason, "config")
        except BaseException as exc:  # noqa: BLE001 - a failure is a denial
            return _failed(exc)

    async def _ask_outer(self, gate: ApprovalGate, call: GuardedCall, data: Mapping[str, Any]) -> Verdict:
        """Let the session around this one decide; what it says counts here too."""
        try:
            facts = {"tool_obj": call.tool, **{key: data[key] for key in _TOLD if data.get(key) is not None}}
            given: Any = data.get("tool_input")
            if call.level is not None:
                facts[LEVEL] = call.level
            answer = await gate(call.tool_name, given, facts)
            source: Source = _OF_OUTER.get(getattr(answer, "source", None), "config")
            verdict = Verdict(answer.approved is True, answer.reason, source)
        except BaseException as exc:  # noqa: BLE001 - a failure is a denial
            return _failed(exc)
        if verdict.approved:
            self._note(call, verdict)
        return verdict

    async def _verdict(self, call: GuardedCall) -> tuple[GuardedCall, Verdict | None]:
        """Return the call with its open concerns, and the decision; None leaves it to the application's own system."""
        try:
            if (level := self._level(call)) is not call.level:
                call = call._replace(level=level)
            call, verdict = self._judge_concerns(call)
            if verdict is not None:
                return call, await self._judge(call, self._request(call), decided=verdict)
            is_risky = not call.is_concern and await self._is_risky(call)
            if not call.concerns and not is_risky:
                self._note(call, _NOT_NEEDED)
                return call, _NOT_NEEDED
            call = call._replace(is_risky=is_risky, is_let_pass=await self._is_let_pass(call))
            if self._outer_gate is not None and not self._is_denied_by_rule(call):
                return call, Verdict(True, "The outer session decides", "config")
            verdict = await self._judge(call, self._request(call))
        except BaseException as exc:  # noqa: BLE001 - the kernel would go on, and the tool would run
            return call, _failed(exc)
        if verdict is not None and verdict.approved:
            self._note(call, verdict)
        return call, verdict

    def _judge_concerns(self, call: GuardedCall) -> tuple[GuardedCall, Verdict | None]:
        """Return the call with the concerns that a person has to be asked about, or a rule's refusal of one."""
        found = call.concerns if call.is_concern else concerns_of_call(call)
        if not found:
            return call, None
        asked = []
        for concern in self._agreements.open(found):
            verdict = self._agreements.judge(concern, call.identity)
            if verdict is None:
                asked.append(concern)
            elif not verdict.approved:
                return call._replace(concerns=(concern,)), verdict
        return call._replace(concerns=tuple(asked)), None

    def _level(self, call: GuardedCall) -> PermissionLevel | None:
        """The permission level of the call: that of this session, or a narrower one of a session inside it."""
        own = self._permissions.level if self._permissions is not None else None
        return own if call.level is None else narrowest(own, call.level)

    async def _is_let_pass(self, call: GuardedCall) -> bool:
        """True where the permission level is wide enough for a call: an edit inside, or what a sandbox contains."""
        if call.level not in ("edits", "auto") or not call.is_well_formed or call.is_concern:
            return False
        if is_edit_inside(call.tool, call.tool_input, call.effects, working_dir(self._coordinator)):
            return True
        is_contained = getattr(call.tool, "is_contained", None)
        return call.level == "auto" and callable(is_contained) and await settle(is_contained(call.tool_input)) is True

    async def _is_risky(self, call: GuardedCall) -> bool:
        if self._is_guarded_write(call) or needs_approval(call, self.settings, self._coordinator):
            return True
        needs_check = find_capability(self._coordinator, NEEDS_CHECK)
        return needs_check is not None and await says_yes(needs_check, call)

    def _is_guarded_write(self, call: GuardedCall) -> bool:
        """True for a write in a directory where each is asked about; a command that a rule approves writes nothing."""
        if WRITE not in call.effects or find_capability(self._coordinator, EACH_WRITE) is None:
            return False
        return call.identity != BASH or self._by_rule(call) != "auto_approve"

    async def needs_approval(self, call: GuardedCall) -> bool:
        """True if policy, rules, the tool itself or what it touches want someone to be asked."""
        return bool(concerns_of_call(call)) or await self._is_risky(call._replace(level=self._level(call)))

    def _note(self, call: GuardedCall, verdict: Verdict) -> None:
        """Let the tool know whether this call was approved; a yes to it is one to its concerns."""
        if call.concerns and verdict.source in _BY_A_PERSON:
            self._agreements.agree(call.concerns)
        if call.is_concern:
            return
        self.consents.note(call.identity, call.tool_input, _CONSENTS.get(verdict.source, Consent.UNASKED))

    async def _ask_application(self, call: GuardedCall) -> Verdict:
        """Ask through the session's own approval system."""
        process = getattr(self._coordinator, "process_hook_result", None)
        if process is None:
            return Verdict(False, "No approval provider available", "error")
        try:
            request = self._request(call)
            with asking_about(self._described(call, request)):
                answer = await process(self._question(request, call), TOOL_PRE, MODULE_ID)
        except BaseException as exc:  # noqa: BLE001 - a failure is a denial
            return _failed(exc)
        if getattr(answer, "action", None) != "continue":
            return Verdict(False, getattr(answer, "reason", None) or "User denied approval", "provider")
        verdict = Verdict(True, "User approved", "provider")
        self._note(call, verdict)
        return verdict

    def _by_rule(self, call: GuardedCall) -> str | None:
        base = working_dir(self._coordinator)
        return check_auto_action(self.settings.rules, call.identity, call.tool_input, working_dir=base)

    def _is_denied_by_rule(self, call: GuardedCall) -> bool:
        return self._by_rule(call) == "auto_deny"

    def _request(self, call: GuardedCall) -> ApprovalRequest:
        return ApprovalRequest(
            tool_name=call.tool_name,
            action=call.action,
            details=json_safe(call.tool_input),
            risk_level=call.risk_level,
            timeout=self.settings.default_timeout_s,
        )

    async def _judge(
        self, call: GuardedCall, request: ApprovalRequest, *, decided: Verdict | None = None
    ) -> Verdict | None:
        announcement = {"action": request.action, "risk_level": request.risk_level}
        try:
            answer = await self._emit(APPROVAL_REQUIRED, call, announcement)
            verdict = _denied_by(answer) or decided or await self._decide(call, request)
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
        decided = self._decided(call, request)
        if decided is not None:
            return decided
        async with self._one_at_a_time:
            decided = self._decided(call, request)  # by an answer that was given while this call waited
            return decided if decided is not None else await self._prompt(call, request)

    def _decided(self, call: GuardedCall, request: ApprovalRequest) -> Verdict | None:
        """Return what needs no question: what rules, earlier answers and the configuration say."""
        by_rule = self._by_rule(call)
        if by_rule == "auto_deny":
            return Verdict(False, "Auto-denied by rule", "rule")
        if self._agreements.open(call.concerns):
            return None
        if not call.is_risky:
            return Verdict(True, "A person agreed to what it touches", "config")
        if self._must_be_asked(call, request):
            return None
        scope = call.scope if self._remembered else None
        if scope is not None and (remembered := self._remembered.get(scope.key)) is not None:
            return remembered
        if by_rule == "auto_approve":
            return Verdict(True, "Auto-approved by rule", "rule")
        if call.is_let_pass:
            return Verdict(True, f"Approved by the permission level {call.level}", "level")
        if call.level is None and self.settings.auto_approve:
            return Verdict(True, "Auto-approved by configuration", "config")
        return None

    def _must_be_asked(self, call: GuardedCall, request: ApprovalRequest) -> bool:
        command = call.command.casefold()
        return (
            not call.is_well_formed
            or request.risk_level == "critical"
            or len(call.command.encode("utf-8", "surrogatepass")) > _LONGEST_UNDERSTOOD
            or any(pattern in command for pattern in self.settings.patterns)
            or self._is_guarded_write(call)
        )

    def _scopes(self, call: GuardedCall, request: ApprovalRequest) -> tuple[Scope, ...]:
        """Return for which later calls an "always" stands; none where it never does."""
        if not self.settings.remember or (call.is_risky and self._must_be_asked(call, request)):
            return ()
        scopes = [Scope.of_concern(concern) for concern in call.concerns]
        if not scopes or self._decided(call._replace(concerns=()), request) is None:
            scopes.append(call.scope)
        known = tuple(scope for scope in scopes if scope is not None)
        return known if len(known) == len(scopes) else ()

    async def _prompt(self, call: GuardedCall, request: ApprovalRequest) -> Verdict | None:
        if self._is_turn_cancelled():
            return Verdict(False, "The turn was cancelled", "error")
        if self._provider is None:
            if self.settings.ask_user_fallback and not self.settings.audit.required:
                return None
            return Verdict(False, "No approval provider available", "error")
        described = self._described(call, request)
        with asking_about(described):
            verdict = await self._ask(self._provider, request, goes_on=self._default_for(call) == "allow")
        if verdict.approved and self._is_turn_cancelled():
            return Verdict(False, "The turn was cancelled", "error")
        if verdict.remember and not call.concerns:
            remembered = Verdict(verdict.approved, verdict.reason, "remembered", remember=True)
            self._remembered.update((scope.key, remembered) for scope in described.scopes)
        if verdict.approved:
            self._agreements.agree(call.concerns)
        return verdict

    async def _ask(self, provider: ApprovalProvider, request: ApprovalRequest, *, goes_on: bool) -> Verdict:
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
            return Verdict(goes_on, "Approval request timed out", "timeout")
        if task is not None and task.cancelling() > cancellations:
            raise asyncio.CancelledError("the turn was cancelled")
        return Verdict.of(response)

    def _described(self, call: GuardedCall, request: ApprovalRequest) -> PendingCall:
        return PendingCall(
            tool_name=call.tool_name,
            identity=call.identity,
            action=request.action,
            risk_level=request.risk_level,
            effects=call.effects,
            scopes=self._scopes(call, request),
            tool_call_id=call.tool_call_id,
            session_id=call.session_id or session_id_of(self._coordinator),
            default=self._default_for(call),
            concerns=call.concerns,
            input=self._shown_input(call, request),
            working_dir=self._working_dir(),
            only_everywhere=self._agreements.is_wary(call.concerns),
        )

    def _shown_input(self, call: GuardedCall, request: ApprovalRequest) -> dict[str, Any]:
        """Return every field that differs from the tool's default."""
        defaults, details = call.defaults, request.details or {}
        return {name: value for name, value in details.items() if name not in defaults or defaults[name] != value}

    def _working_dir(self) -> str | None:
        directory = find_capability(self._coordinator, "session.working_dir")
        return str(directory) if isinstance(directory, (str, os.PathLike)) else None

    def _default_for(self, call: GuardedCall) -> Literal["allow", "deny"]:
        """What counts without an answer; what is asked about by name, or at a chosen level, needs a person's yes."""
        is_lenient = self.settings.continues_on_timeout and not call.concerns and call.level is None
        return "allow" if is_lenient else "deny"

    def _question(self, request: ApprovalRequest, call: GuardedCall) -> HookResult:
        question = HookResult(
            action="ask_user",
            approval_prompt=question_text(request, self._described(call, request)),
            approval_default=self._default_for(call),
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

    async def _emit(self, event: str, call: GuardedCall, payload: dict[str, Any]) -> Any:
        if self._hooks is None or not hasattr(self._hooks, "emit"):
            return None
        data = {"tool_name": call.tool_name, **payload, "tool_call_id": call.tool_call_id}
        return await self._hooks.emit(event, data)


def _denied_by(answer: Any) -> Verdict | None:
    """Return the denial of a hook that heard that an approval is needed, None where none denied."""
    if getattr(answer, "action", None) != "deny":
        return None
    reason = getattr(answer, "reason", None)
    return Verdict(False, reason if isinstance(reason, str) and reason else "A hook denied it", "rule")


def _failed(error: BaseException) -> Verdict:
    """Return the denial that an error amounts to; what ends the turn itself is raised."""
    if isinstance(error, GeneratorExit | KeyboardInterrupt):
        raise error
    with contextlib.suppress(Exception):  # not even a broken log opens the gate
        logger.error("hooks-approval: a tool call is denied because the guard failed", exc_info=error)
    return Verdict.failed(error)
