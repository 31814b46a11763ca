"""What is told of a delegation by this tool: one event at its start, one at its end, and what the model reads."""

import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from amplifier_core import ToolResult
from amplifier_kit.delegation.agents import ModelChoice
from amplifier_kit.delegation.engine import Delegation, Event, Outcome, text_of_error
from amplifier_kit.tools.input import ToolFailure

SPAWNED = "delegate:agent_spawned"
RESUMED = "delegate:agent_resumed"
COMPLETED = "delegate:agent_completed"
CANCELLED = "delegate:agent_cancelled"
FAILED = "delegate:error"
UNRESOLVED = "delegate:model_role_unresolved"

EVENTS = (SPAWNED, RESUMED, COMPLETED, CANCELLED, FAILED, UNRESOLVED)

FindPartial = Callable[[str], Awaitable[Mapping[str, Any] | None]]


@dataclass(frozen=True, kw_only=True)
class AgentDelegation(Delegation):
    """A delegation that is told exactly one end: completed, cancelled or an error.

    `facts` are what its first event says beyond who delegates to whom; `dispatch` which call of the tool it serves.
    """

    facts: Mapping[str, Any]
    dispatch: Mapping[str, Any]
    choice: ModelChoice
    strips_contract: bool | None = None
    """True if the answer has a contract to be read, and its block is taken out; None where none was asked for."""
    calls_limit: int | None = None
    find_partial: FindPartial | None = None
    partial_max_chars: int = 20_000
    _begun: float = field(default_factory=time.monotonic)

    def started(self) -> Event:
        return SPAWNED, {**self.identity, **self.facts, **self.dispatch, **self.routing}

    @property
    def routing(self) -> dict[str, Any]:
        preferences = [preference.to_dict() for preference in self.choice.preferences]
        return {"model_role": self.choice.role, "provider_preferences": preferences or None}

    def done(self, returned: Any) -> Outcome:
        output = self.answer(returned)
        metadata = dict(output.get("metadata") or {})
        if self.calls_limit is not None:
            metadata["budget_enforced"] = True
        output |= {"status": output.get("status", "success"), "metadata": metadata}
        if self.choice.role is not None:
            resolved = [preference.to_dict() for preference in self.choice.preferences]
            output["provider_routing"] = {"model_role": self.choice.role, "resolved": resolved}
        if self.strips_contract is not None:
            text, contract = read_contract(str(output["response"]), strips_block=self.strips_contract)
            output |= {"response": text, "contract": contract}
        if output["status"] == "cancelled":
            return ToolResult(success=True, output=output), self.cancelled()
        return ToolResult(success=True, output=output), [self._ended(COMPLETED, success=True)]

    def cancelled(self) -> Sequence[Event]:
        return [self._ended(CANCELLED)]

    async def failed(self, error: Exception) -> Outcome:
        failure = self.failure(error)
        data = {"error": failure.message, "error_type": type(error).__name__, "status": "error"}
        return failure.result(), [self._ended(FAILED, **data, elapsed_s=self._elapsed())]

    def failure(self, error: Exception) -> ToolFailure:
        """Return what the model is told about an error."""
        kind = type(error).__name__
        message = f"Agent delegation failed ({kind}): {text_of_error(error)}"
        return ToolFailure(message, "delegation_failed", type=kind, agent=self.agent, session_id=self.sub_session_id)

    async def timed_out(self) -> Outcome:
        """Return what the child said so far; the calls beside this one go on."""
        message = (
            f"Agent delegation timed out after {self.timeout_s:g} seconds. Its session was stopped; go on with it by "
            f"session_id {self.sub_session_id!r}, or do the rest yourself"
        )
        partial = await self._partial()
        output = {"status": "timeout", "completed": False, "session_id": self.sub_session_id, **partial}
        data = {"error": message, "error_type": "TimeoutError", "status": "timeout", "elapsed_s": self._elapsed()}
        data |= {"timeout_seconds": self.timeout_s, **{k: v for k, v in partial.items() if k != "partial_response"}}
        code = {"code": "DELEGATION_TIMEOUT", "session_id": self.sub_session_id, "agent": self.agent}
        result = ToolResult(success=False, output=output, error={"message": message, **code})
        return result, [self._ended(FAILED, **data)]

    async def _partial(self) -> dict[str, Any]:
        found = await self.find_partial(self.sub_session_id) if self.find_partial is not None else None
        text = str((found or {}).get("text") or "")
        kept = text[-self.partial_max_chars :] if self.partial_max_chars else ""
        return {
            "partial_available": bool(text),
            "partial_response": kept,
            "partial_segments": (found or {}).get("segments") or 0,
            "partial_source": (found or {}).get("source") if text else None,
            "partial_truncated": len(kept) < len(text),
            "partial_chars_total": len(text),
        }

    def _ended(self, event: str, **facts: Any) -> Event:
        return event, {**self.identity, **self.dispatch, **facts}

    def _elapsed(self) -> float:
        return round(time.monotonic() - self._begun, 3)


class Resume(AgentDelegation):
    """Another task for a session that has done one already."""

    def started(self) -> Event:
        who = {"session_id": self.sub_session_id, "parent_session_id": self.parent_session_id}
        return RESUMED, {**who, **self.dispatch, **self.routing}

    def failure(self, error: Exception) -> ToolFailure:
        if isinstance(error, FileNotFoundError):
            message = (
                f"Agent session '{self.sub_session_id}' not found. It may have ended with another process; name an "
                "agent to start a new one"
            )
            return ToolFailure(message, "not_found", session_id=self.sub_session_id)
        return super().failure(error)


# The return contract: what an agent found, as data at the end of its answer.


CONTRACT_REQUEST = """\


End your answer with one fenced json block of this shape, and nothing after it:
```json
{"summary": "…", "findings": [{"claim": "…", "evidence": "file:line or command", "confidence": "high|medium|low"}],
 "not_covered": ["…"], "artifacts": [{"path": "…", "description": "…"}]}
```"""

_BLOCK = re.compile(r"^```json[ \t]*\n(.*?)^```[ \t]*$\n?", re.MULTILINE | re.DOTALL)
_PARTS: dict[str, tuple[type, tuple[str, ...]]] = {
    "summary": (str, ()),
    "findings": (list, ("claim", "evidence", "confidence")),
    "not_covered": (list, ()),
    "artifacts": (list, ("path", "description")),
}


def read_contract(text: str, *, strips_block: bool) -> tuple[str, dict[str, Any]]:
    """Return an answer and the contract in its last fenced json block; `conformant` says whether it is one."""
    blocks = list(_BLOCK.finditer(text))
    if not blocks:
        return text, {"conformant": False, "reason": "the answer has no fenced json block"}
    try:
        found = json.loads(blocks[-1][1])
    except ValueError as error:
        return text, {"conformant": False, "reason": f"the json block cannot be read: {error}"}
    if reason := _why_not(found):
        return text, {"conformant": False, "reason": reason}
    contract = {name: found.get(name, kind()) for name, (kind, _) in _PARTS.items()}
    stripped = (text[: blocks[-1].start()] + text[blocks[-1].end() :]).strip() if strips_block else text
    return stripped, {**contract, "conformant": True, "reason": None}


def _why_not(found: Any) -> str:
    if not isinstance(found, dict):
        return "the json block is not an object"
    if "summary" not in found and "findings" not in found:
        return "it has neither 'summary' nor 'findings'"
    for name, (kind, keys) in _PARTS.items():
        if name in found and not isinstance(found[name], kind):
            return f"{name!r} is a {type(found[name]).__name__}"
        for item in found.get(name) or () if keys else ():
            if not isinstance(item, dict) or keys[0] not in item:
                return f"an item of {name!r} has no {keys[0]!r}"
    return ""
