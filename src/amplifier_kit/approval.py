"""Approval of a tool call: what was asked about is what runs.

A guard such as `hooks-approval` offers the capability `approval.gate`. A loop asks it after the last `tool:pre`
handler, about arguments that nothing else can reach any more. Meanwhile it says so with `asking_afterwards`: a guard
that also listens to `tool:pre`, for loops that know nothing of the gate, then does not ask twice. It names the gate it
will ask, so that a guard whose gate was replaced by another module, or that guards a session inside, still decides.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol

GATE = "approval.gate"
"""The capability that decides about a call, an `ApprovalGate`."""

_ATOMS = frozenset({str, int, float, bool, type(None)})

_asked_afterwards: ContextVar[object] = ContextVar("asked_afterwards", default=None)


class GateVerdict(Protocol):
    """The decision about a call."""

    @property
    def approved(self) -> bool: ...

    @property
    def reason(self) -> str: ...


class ApprovalGate(Protocol):
    """Decides whether a call may run; `call` describes it: `tool_call_id`, `tool_obj`, `parallel_group_id`."""

    async def __call__(self, tool_name: str, frozen_input: dict[str, Any], call: Mapping[str, Any]) -> GateVerdict: ...


class asking_afterwards:
    """Says that the emitter of `tool:pre` asks this gate when its handlers are done."""

    __slots__ = ("_gate", "_token")

    def __init__(self, gate: ApprovalGate) -> None:
        self._gate = gate

    def __enter__(self) -> None:
        self._token = _asked_afterwards.set(self._gate)

    def __exit__(self, *error: object) -> None:
        _asked_afterwards.reset(self._token)


def is_asked_afterwards(gate: ApprovalGate) -> bool:
    """Say whether this very gate is going to be asked about the call that is announced at the moment."""
    return _asked_afterwards.get() == gate


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
