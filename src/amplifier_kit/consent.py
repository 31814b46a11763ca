"""Whether anyone was asked about a tool call: how the guard of a session tells the tool.

The guard, `hooks-approval`, offers the capability `approval.consent`, a `Consents`, and notes every decision in it
before the call runs. A tool that can do more with a yes than without asks `consent_to`. The call is recognized by its
input, so that a decision about one call says nothing about another, whichever loop runs it.
"""

from collections import OrderedDict
from enum import StrEnum
from typing import Any, Protocol

from .approval import GATE, fingerprint
from .mounting import find_capability

CONSENT = "approval.consent"

_REMEMBERED = 1_000


class Consent(StrEnum):
    """What is known about a call that is about to run."""

    APPROVED = "approved"
    """A person was asked about exactly this call, now, and said yes."""

    REMEMBERED = "remembered"
    """A person said yes before, to this call or to one like it; it reaches the hosts that were named then."""

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
