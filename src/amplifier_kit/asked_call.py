"""The tool call that a person is asked about: how a guard tells those who put the question what it knows.

A request of the approval protocols names a tool and shows its input. A guard such as `hooks-approval` knows more: which
call it is, what the tool really is and does, and what like calls have in common. It says so with `asking_about` while
it asks; the code that answers in the same task finds it with `find_asked_call`.
"""

from __future__ import annotations

import json
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

from amplifier_core.interfaces import ApprovalRequest


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A call in question. `identity` is the tool's own name, by whatever name it is mounted.

    An answer may stand for later calls with the same `remember_key`; None for a call that is like no other. `default`
    is what the guard does when there is no answer in time.
    """

    tool_name: str
    identity: str
    action: str
    risk_level: str
    effects: frozenset[str]
    remember_key: str | None = None
    tool_call_id: str | None = None
    session_id: str | None = None
    default: Literal["allow", "deny"] = "deny"


_asked: ContextVar[AskedCall | None] = ContextVar("asked_call", default=None)


class asking_about:
    """Says that the questions asked meanwhile are about this call."""

    __slots__ = ("_call", "_token")

    def __init__(self, call: AskedCall) -> None:
        self._call = call

    def __enter__(self) -> None:
        self._token = _asked.set(self._call)

    def __exit__(self, *error: object) -> None:
        _asked.reset(self._token)


def shown_details(request: ApprovalRequest) -> str:
    """Return what a question shows beside an action, which names a command but not the input of other tools."""
    if not request.details or request.action.startswith("Execute:"):
        return ""
    return "\n" + json.dumps(request.details, ensure_ascii=False, indent=2, default=repr)


def find_asked_call() -> AskedCall | None:
    """Return the call that is asked about at the moment, None where no guard says."""
    return _asked.get()
