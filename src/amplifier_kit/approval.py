"""Approval of a tool call: what was asked about is what runs.

A guard such as `hooks-approval` offers the capability `approval.gate`. A loop asks it after the last `tool:pre`
handler, about arguments that nothing else can reach any more. Meanwhile it says so with `deferring`: a guard
that also listens to `tool:pre`, for loops that know nothing of the gate, then does not ask twice. It names the gate it
will ask, so that a guard whose gate was replaced by another module, or that guards a session inside, still decides.

Behind the loop the guard sees every call of a tool once more, when it runs: the capability `approval.guard`. What a
loop has had approved it passes on with `running_approved`; everything else is asked about there, so that it does not
matter which loop runs, or whether a hook, a tool or a child session makes the call.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Mapping
from contextvars import ContextVar
from enum import StrEnum
from typing import Any, Protocol

from amplifier_core.exceptions import describe

from .mounting import find_capability, find_function
from .types import Coordinator

logger = logging.getLogger(__name__)

GATE = "approval.gate"
"""The capability that decides about a call, an `ApprovalGate`."""

_ATOMS = frozenset({str, int, float, bool, type(None)})

GUARD = "approval.guard"
"""The capability that sees every call of a tool before it runs, and the name under which it intercepts them."""

EACH_WRITE = "approval.each_write"
"""The capability of a session in whose working directory each write is asked about; it is the reason, as a text."""

_deferred_gate: ContextVar[object] = ContextVar("deferred_gate", default=None)
_approved: ContextVar[tuple[object, object, Any] | None] = ContextVar("approved", default=None)


class GateVerdict(Protocol):
    """The decision about a call."""

    @property
    def approved(self) -> bool: ...

    @property
    def reason(self) -> str: ...


class ApprovalGate(Protocol):
    """Decides whether a call may run; `call` describes it: `tool_call_id`, `tool_obj`, `parallel_group_id`."""

    async def __call__(self, tool_name: str, frozen_input: dict[str, Any], call: Mapping[str, Any]) -> GateVerdict: ...


def find_gate(coordinator: Coordinator) -> ApprovalGate | None:
    """The gate of the session, None when it has none. Whatever it is, it is asked, and denies what it cannot decide."""
    gate: ApprovalGate | None = find_function(coordinator, GATE)
    return gate


class deferring:
    """Says that the emitter of `tool:pre` asks this gate when its handlers are done."""

    __slots__ = ("_gate", "_token")

    def __init__(self, gate: ApprovalGate) -> None:
        self._gate = gate

    def __enter__(self) -> None:
        self._token = _deferred_gate.set(self._gate)

    def __exit__(self, *error: object) -> None:
        _deferred_gate.reset(self._token)


def is_deferred(gate: ApprovalGate) -> bool:
    """True if this very gate is going to be asked about the call that is announced at the moment."""
    return _deferred_gate.get() == gate


class running_approved:
    """Says that a gate has approved a call of a tool with this input, which is about to run."""

    __slots__ = ("_approval", "_token")

    def __init__(self, gate: ApprovalGate, tool: object, tool_input: Any) -> None:
        self._approval = (gate, tool, tool_input)

    def __enter__(self) -> None:
        self._token = _approved.set(self._approval)

    def __exit__(self, *error: object) -> None:
        _approved.reset(self._token)


def take_approval(gate: ApprovalGate, tool: object, tool_input: Any) -> bool:
    """True if this gate has approved exactly the call that is about to run; an approval is good for one call."""
    approval = _approved.get()
    if approval is None:
        return False
    _approved.set(None)
    by, approved_tool, approved_input = approval
    is_same_tool = approved_tool is tool or getattr(approved_tool, "__wrapped__", None) is tool
    return by == gate and is_same_tool and bool(approved_input == tool_input)


async def ask_gate(gate: ApprovalGate, tool_name: str, tool_input: Any, call: Mapping[str, Any]) -> str | None:
    """Ask whether a call may run; returns why not, None for a yes.

    Raises:
        asyncio.CancelledError: the turn was cancelled meanwhile; a guard turns whatever it catches into a denial.
    """
    task = asyncio.current_task()
    cancellations = task.cancelling() if task is not None else 0
    try:  # written out, because a turn comes by here for every tool call
        verdict = await gate(tool_name, tool_input, call)
    except Exception as exc:
        logger.exception("the approval of %r failed and counts as denied", tool_name)
        return f"Approval failed: {describe(exc)}"
    if task is not None and task.cancelling() > cancellations:
        raise asyncio.CancelledError("the turn was cancelled")
    return None if verdict.approved is True else verdict.reason


def own_copy(value: Any) -> Any:
    """Return arguments that share no container with the original."""
    if isinstance(value, dict):
        return {key: item if type(item) in _ATOMS else own_copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [item if type(item) in _ATOMS else own_copy(item) for item in value]
    if isinstance(value, tuple):
        return tuple(own_copy(item) for item in value)
    return value


def fingerprint(value: Any) -> str:
    """Return what tells two inputs of a tool apart."""
    text = json.dumps(value, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# Whether anyone was asked about a tool call: how the guard of a session tells the tool.
#
# The guard, `hooks-approval`, offers the capability `approval.consent`, a `Consents`, and notes every decision in
# it before the call runs. A tool that can do more with a yes than without asks `consent_to`. The call is recognized
# by its input, so that a decision about one call says nothing about another, whichever loop runs it.


CONSENT = "approval.consent"

_REMEMBERED = 1_000


class Consent(StrEnum):
    """What is known about a call that is about to run."""

    APPROVED = "approved"
    """A person was asked about exactly this call, now, and said yes."""

    REMEMBERED = "remembered"
    """A person said yes before, to this call or to one like it; it reaches the hosts that were named then."""

    LEVEL = "level"
    """The permission level let it pass; it reaches only hosts that the policy names or that a person agrees to."""

    UNASKED = "unasked"
    """A rule or the configuration let it pass."""

    UNGUARDED = "unguarded"
    """The session has no guard: its author wants no questions, and the policy is the only bound."""


class ConsentLookup(Protocol):
    """What the capability `approval.consent` is."""

    def __call__(self, tool_name: str, tool_input: Any) -> Consent: ...


class Consents:
    """The latest decisions of one session's guard."""

    def __init__(self) -> None:
        self._decisions: OrderedDict[str, Consent] = OrderedDict()

    def note(self, tool_name: str, tool_input: Any, consent: Consent) -> None:
        """Remember the decision about a call of the tool with this own name."""
        if consent is Consent.UNASKED and not self._decisions:
            return  # which is what a call without a decision is
        key = _key(tool_name, tool_input)
        self._decisions.pop(key, None)
        if consent is not Consent.UNASKED:
            self._decisions[key] = consent
        if len(self._decisions) > _REMEMBERED:
            self._decisions.popitem(last=False)

    def __call__(self, tool_name: str, tool_input: Any) -> Consent:
        """Return the decision; a call without a decision is one that no one was asked about."""
        return self._decisions.get(_key(tool_name, tool_input), Consent.UNASKED)


def consent_to(coordinator: Any, tool_name: str, tool_input: Any) -> Consent:
    """Return what the session's guard says of a call; a guard that says nothing has asked no one."""
    lookup: ConsentLookup | None = find_capability(coordinator, CONSENT)
    if lookup is None:
        return Consent.UNGUARDED if find_capability(coordinator, GATE) is None else Consent.UNASKED
    return lookup(tool_name, tool_input)


def _key(tool_name: str, tool_input: Any) -> str:
    """Return what stands for a call; keys with an underscore before them are a loop's own."""
    if isinstance(tool_input, dict):
        tool_input = {name: value for name, value in tool_input.items() if not str(name).startswith("_")}
    return fingerprint([tool_name, tool_input])
