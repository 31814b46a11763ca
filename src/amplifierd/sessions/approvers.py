"""Who answers when a session asks: one protocol, and the answers an application often wants.

With `LeaveOpen` a question waits for `ApprovalQueue.resolve`, which is how a daemon's clients answer.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Protocol

from amplifier_core.boundary import settle
from amplifier_system.threads import detached

from .approval import ALLOW, DENY, Approval, ApprovalDecision

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
