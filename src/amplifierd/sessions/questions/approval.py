"""A question about something that a session wants to do, and the answer to it."""

from __future__ import annotations

import asyncio
import inspect
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol

from amplifier_core.boundary import settle
from amplifier_core.interfaces import ApprovalRequest
from amplifier_kit.approval import fingerprint
from amplifier_kit.concerns import Concern, PendingCall, Scope, question_text, words_of
from amplifier_kit.tools.effects import ALL_EFFECTS, suggested_effects
from amplifier_system.threads import detached
from amplifierd.exceptions import ApprovalDecisionError
from amplifierd.store.record import now

Default = Literal["allow", "deny"]
Status = Literal["pending", "resolved", "expired"]
Remember = bool | Literal["session", "project", "everywhere"]
"""How far an answer reaches: this call only, or like calls of this session (as True says), this project, or all."""

ALLOW: Default = "allow"
DENY: Default = "deny"
CRITICAL = "critical"

_ONCE, _ALWAYS, _NO = "Allow once", "Allow always", "Deny"
_ALLOWING = frozenset({"allow", "allow once", "allow always"})
_DENYING = frozenset({"deny", "deny once", "deny always"})
_LASTING = frozenset({"allow always", "deny always"})
_LONGEST_TIMEOUT_S = 10 * 365 * 86_400.0
_UNKNOWN_RISK = "unknown"
_PUBLISHED = (
    *("request_id", "session_id", "tool_name", "tool_call_id", "action", "risk_level", "prompt", "options"),
    *("timeout", "default", "created_at", "expires_at", "status", "working_dir"),
)


@dataclass(frozen=True)
class ApprovalDecision:
    """An answer: `allow`, `deny`, or one of the options that were offered.

    `remember` lets it stand for like calls: of the session (True means the same), of the project, or everywhere.
    """

    decision: str
    reason: str | None = None
    remember: Remember = False


@dataclass(frozen=True)
class Approval:
    """A question that was put, and what came of it.

    `identity` is the tool's own name, by whatever name it is mounted, and `effects` is what the call can do: all of
    `read`, `write`, `execute`, `network` and `spawn` where nothing is known. `tool_name` is None when a hook asked
    without naming a tool. `prompt` has everything that will run, in words. An "always" stands for the calls of all its
    `scopes`; a question without scopes is like no other: an answer never stands for later ones. With `only_everywhere`,
    only an "always everywhere" stands for it.
    """

    session_id: str
    prompt: str
    options: tuple[str, ...]
    timeout: float | None = None
    default: Default = DENY
    tool_name: str | None = None
    identity: str | None = None
    tool_call_id: str | None = None
    action: str = ""
    risk_level: str = _UNKNOWN_RISK
    effects: frozenset[str] = ALL_EFFECTS
    input: Mapping[str, Any] = field(default_factory=dict)
    scopes: tuple[Scope, ...] = ()
    concerns: tuple[Concern, ...] = ()
    working_dir: str | None = None
    only_everywhere: bool = False
    request_id: str = field(default_factory=lambda: f"approval_{uuid.uuid4().hex}")
    created_at: str = field(default_factory=now)
    status: Status = "pending"
    option: str | None = None
    reason: str | None = None
    by: str | None = None
    resolved_at: str | None = None

    @classmethod
    def of_question(
        cls,
        session_id: str,
        prompt: str,
        options: Sequence[str],
        *,
        timeout: float | None,
        default: str,
        call: PendingCall | None = None,
    ) -> Approval:
        """Return the question of a hook that answered `ask_user`; `call` is what a guard says of it."""
        asked = {
            "prompt": prompt,
            "options": tuple(str(option) for option in options),
            "timeout": _usable(timeout),
            "default": ALLOW if str(default).casefold() in _ALLOWING else DENY,
        }
        return cls(**{"session_id": session_id, "action": prompt, **(_known_of(call) if call else {}), **asked})

    @classmethod
    def of_request(cls, session_id: str, request: ApprovalRequest, call: PendingCall | None = None) -> Approval:
        """Return the question of a guard with rules of its own, such as `hooks-approval`."""
        known = _known_of(call) if call else _guessed_of(request)
        if request.risk_level == CRITICAL:
            known["scopes"] = ()
        return cls(
            **{
                "session_id": session_id,
                **known,
                "action": request.action,
                "risk_level": request.risk_level,
                "prompt": question_text(request, call),
                "options": (_ONCE, _ALWAYS, _NO) if known["scopes"] else (_ONCE, _NO),
                "timeout": _usable(request.timeout),
                "input": call.input if call else request.details,
            }
        )

    @classmethod
    def read(cls, listed: Mapping[str, Any]) -> Approval:
        """Return the question that `to_dict` described; what an older or newer version says differently is left out."""
        known = {name: listed[name] for name in (each.name for each in fields(cls)) if name in listed}
        lists = {
            "options": tuple(listed["options"]),
            "concerns": tuple(Concern(**concern) for concern in listed.get("concerns") or ()),
            "scopes": tuple(Scope.read(scope) for scope in listed.get("scopes") or ()),
        }
        return cls(**{**known, **lists})

    @property
    def expires_at(self) -> str | None:
        if self.timeout is None:
            return None
        moment = datetime.fromisoformat(self.created_at) + timedelta(seconds=self.timeout)
        return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")

    @property
    def always_covers(self) -> str | None:
        """Return for which calls an "always" stands, in words; None where it stands for no other."""
        return words_of(self.scopes) if self.scopes else None

    @property
    def is_allowed(self) -> bool:
        return self.option is not None and _allows(self.option)

    @property
    def decision(self) -> str | None:
        """Return `allow`, `deny`, or an option that means neither; None while there is no answer."""
        if self.is_allowed:
            return ALLOW
        return DENY if self.option is not None and _denies(self.option) else self.option

    def chosen(self, decision: str, *, remember: Remember = False) -> str:
        """Return the option that a decision means.

        Raises:
            ApprovalDecisionError: it is neither an option nor `allow` nor `deny`.
        """
        wanted = decision.strip().casefold() if isinstance(decision, str) else ""
        if wanted in (ALLOW, DENY):
            means = _allows if wanted == ALLOW else _denies
            alike = sorted(filter(means, self.options), key=lambda option: is_lasting(option) != bool(remember))
            return alike[0] if alike and (remember or not is_lasting(alike[0])) else wanted.capitalize()
        exact = next((option for option in self.options if option.casefold() == wanted), None)
        if exact is None:
            raise ApprovalDecisionError(
                f"approval {self.request_id}: {decision!r} is not an answer to it",
                hint=f"answer allow, deny or one of its options: {', '.join(map(repr, self.options))}",
            )
        return exact

    def answered(self, option: str, *, reason: str | None, by: str) -> Approval:
        return replace(self, option=option, reason=reason, by=by, status="resolved", resolved_at=now())

    def expired(self) -> Approval:
        option = self.chosen(self.default)
        reason = "Approval request timed out"
        return replace(self, option=option, reason=reason, by="timeout", status="expired", resolved_at=now())

    def to_dict(self) -> dict[str, Any]:
        """Return what clients are shown."""
        shown = {name: getattr(self, name) for name in _PUBLISHED}
        answer = {"decision": self.decision, "reason": self.reason, "by": self.by, "resolved_at": self.resolved_at}
        asked = {
            "options": list(self.options),
            "input": dict(self.input),
            "concerns": [asdict(concern) for concern in self.concerns],
            "scopes": [scope.to_dict() for scope in self.scopes],
            "always_covers": self.always_covers,
        }
        return {**shown, **asked, **(answer if self.status != "pending" else {})}


def is_lasting(option: str) -> bool:
    """True if an option asks for the answer to stand for like calls as well."""
    return option.casefold() in _LASTING


def _allows(option: str) -> bool:
    return option.casefold() in _ALLOWING


def _denies(option: str) -> bool:
    return option.casefold() in _DENYING


def _known_of(call: PendingCall) -> dict[str, Any]:
    known = {
        "tool_name": call.tool_name,
        "identity": call.identity,
        "tool_call_id": call.tool_call_id,
        "action": call.action,
        "risk_level": call.risk_level,
        "effects": call.effects,
        "default": call.default,
        "scopes": call.scopes if call.risk_level != CRITICAL else (),
        "concerns": call.concerns,
        "input": call.input,
        "working_dir": call.working_dir,
        "only_everywhere": call.only_everywhere,
    }
    return {**known, "session_id": call.session_id} if call.session_id else known


def _guessed_of(request: ApprovalRequest) -> dict[str, Any]:
    """Return what a request without a guard's word gives away; only the very same input is alike."""
    name = request.tool_name
    exactly = fingerprint(request.details) if request.details else name
    scopes = (Scope(name, exactly, is_exact=True),)
    return {"tool_name": name, "identity": name, "effects": suggested_effects(name), "scopes": scopes}


def _usable(timeout: float | None) -> float | None:
    if timeout is None or not math.isfinite(timeout) or timeout > _LONGEST_TIMEOUT_S:
        return None
    return max(0.0, float(timeout))


# Who answers when a session asks: one protocol, and the answers an application often wants.
#
# With `LeaveOpen` a question waits for `ApprovalQueue.resolve`, which is how a daemon's clients answer.


_RISKS = ("low", "medium", "high", "critical")


class Approver(Protocol):
    """Answers the questions of sessions. What it raises is logged and counts as a denial."""

    async def decide(self, approval: Approval) -> ApprovalDecision: ...


class DenyAll:
    """Says no to everything."""

    def __init__(self, reason: str = "Nothing that needs an approval is allowed here") -> None:
        self._reason = reason

    async def decide(self, approval: Approval) -> ApprovalDecision:
        return ApprovalDecision(DENY, self._reason)


class LeaveOpen:
    """Answers nothing: every question waits for `resolve`, for its time-out, or for the end of its turn."""

    async def decide(self, approval: Approval) -> ApprovalDecision:
        await asyncio.get_running_loop().create_future()  # cancelled as soon as the question has its answer
        raise AssertionError


@dataclass(frozen=True)
class ApprovalRule:
    """Calls that are allowed: all three conditions have to hold.

    `tool` is a pattern (`*`, `?`, `[…]`) of the tool's own name, by whatever name it is mounted. `effects` is what the
    call may do at most, from `read`, `write`, `execute`, `network` and `spawn`; None allows all of them. `risk` is the
    highest level allowed, of low, medium, high and critical; a level of another name counts as critical, and so does
    the question of a hook that says nothing about the call.
    """

    tool: str = "*"
    effects: frozenset[str] | None = None
    risk: str = "high"

    def __post_init__(self) -> None:
        if self.risk not in _RISKS:
            raise ValueError(f"ApprovalRule: risk is {self.risk!r}, not one of {', '.join(_RISKS)}")

    def covers(self, approval: Approval) -> bool:
        return (
            fnmatchcase(approval.identity or "", self.tool)
            and (self.effects is None or approval.effects <= self.effects)
            and _rank(approval.risk_level) <= _rank(self.risk)
        )


class AllowByRule:
    """Allows what a rule covers and leaves everything else to `otherwise`, which denies it unless told differently.

        AllowByRule([ApprovalRule("write_file"), ApprovalRule(effects=frozenset({"read", "network"}))])

    allows files to be written and everything that only reads or uses the network. A plain text is a rule for the tools
    that it is a pattern of: `AllowByRule(["write_file", "edit_*"])`. Rules never reach what the session's policy or
    the guard's own `auto_deny` refuses: those are not asked about.
    """

    def __init__(self, rules: Sequence[ApprovalRule | str], *, otherwise: Approver | None = None) -> None:
        self._rules = tuple(ApprovalRule(rule) if isinstance(rule, str) else rule for rule in rules)
        self._otherwise = otherwise or DenyAll("No rule allows it")

    async def decide(self, approval: Approval) -> ApprovalDecision:
        rule = next((rule for rule in self._rules if rule.covers(approval)), None)
        if rule is None:
            return await self._otherwise.decide(approval)
        return ApprovalDecision(ALLOW, f"Allowed by the rule for {rule.tool!r}")


class Callback:
    """Asks a function of the application.

    It returns an `ApprovalDecision`, True or False, or the text of an option. A plain function runs in a thread of its
    own, so it may wait for a person as long as it likes; a coroutine function runs where the session does.
    """

    def __init__(self, function: Callable[[Approval], Any]) -> None:
        self._function = function

    async def decide(self, approval: Approval) -> ApprovalDecision:
        called = getattr(self._function, "__call__", self._function)  # noqa: B004 - an object may have an async call
        if inspect.iscoroutinefunction(self._function) or inspect.iscoroutinefunction(called):
            answer = await self._function(approval)
        else:
            answer = await settle(await detached("approval", lambda: self._function(approval)))
        return _decision(answer)


def _decision(answer: Any) -> ApprovalDecision:
    if isinstance(answer, ApprovalDecision):
        return answer
    if isinstance(answer, bool):
        return ApprovalDecision(ALLOW if answer else DENY)
    if isinstance(answer, str):
        return ApprovalDecision(answer)
    raise TypeError(f"the callback returned a {type(answer).__name__}, not an ApprovalDecision, a bool or an option")


def _rank(risk: str) -> int:
    return _RISKS.index(risk) if risk in _RISKS else _RISKS.index("critical")
