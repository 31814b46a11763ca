"""The guard where tools run: whatever calls a tool, only what was approved runs."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from amplifier_core import ToolResult
from amplifier_core.boundary import emit_quietly
from amplifier_core.events import POLICY_VIOLATION
from amplifier_core.tool_interception import is_covered
from amplifier_kit.approval import ApprovalGate, ask_gate, fingerprint, own_copy, take_approval

from .verdict import GuardedCall

CHANGED = "its input was changed after it had been approved"

_REMEMBERED = 100


class ExecutionGuard:
    """Lets a call run that its loop has had approved, or that was approved at `tool:pre`; asks about any other.

    A call with another input than the one that was approved at `tool:pre` was changed since, and does not run.
    """

    def __init__(
        self,
        gate: ApprovalGate,
        needs_approval: Callable[[GuardedCall], Awaitable[bool]],
        hooks: Any,
        note_result: Callable[[Any, str, Any, Any], Awaitable[None] | None],
    ) -> None:
        self._gate, self._needs_approval, self._hooks = gate, needs_approval, hooks
        self._note_result = note_result
        self._approved: defaultdict[str, list[str]] = defaultdict(list)

    def expect(self, data: Mapping[str, Any], coordinator: Any) -> None:
        """Note that a call was approved at `tool:pre`, if its running will be seen."""
        call = GuardedCall.read(data, coordinator)
        if not is_covered(call.tool):
            return
        expected = self._approved[call.identity]
        expected.append(fingerprint(data.get("tool_input")))
        del expected[:-_REMEMBERED]

    async def __call__(
        self, tool_name: str, tool: Any, tool_input: Any, proceed: Callable[[Any], Awaitable[Any]]
    ) -> Any:
        """Run a call, or answer why it does not run."""
        if not take_approval(self._gate, tool, tool_input):  # else at once: nothing can change it on the way
            tool_input = own_copy(tool_input)
            refusal = await self._refusal(tool_name, tool, tool_input)
            if refusal is not None:
                return ToolResult(success=False, error={"message": f"Denied by hook: {refusal}", "code": "denied"})
        result = await proceed(tool_input)
        identity = getattr(tool, "name", None)
        identity = identity if isinstance(identity, str) else tool_name
        announcement = self._note_result(tool, identity, tool_input, result)  # what cannot be noted is not handed on
        if announcement is not None:
            await announcement
        return result

    async def _refusal(self, tool_name: str, tool: Any, frozen: Any) -> str | None:
        described = {"tool_name": tool_name, "tool_input": own_copy(frozen), "tool_obj": tool}
        call = GuardedCall.read(described)
        if expected := self._approved.get(call.identity):
            if (approved := fingerprint(frozen)) in expected:
                expected.remove(approved)
                return None
            if await self._needs_approval(call):
                expected.pop(0)
                details = {"tool_name": tool_name, "reason": "changed-after-approval"}
                await emit_quietly(self._hooks, POLICY_VIOLATION, details)
                return CHANGED
        return await ask_gate(self._gate, tool_name, described["tool_input"], {"tool_obj": tool})
