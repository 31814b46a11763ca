"""Which calls need an approval at all."""

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from amplifier_core import ToolResult
from amplifier_core.boundary import Boundary, emit_quietly, settle
from amplifier_core.events import POLICY_VIOLATION
from amplifier_core.tool_interception import is_covered
from amplifier_kit.approval import ApprovalGate, ask_gate, fingerprint, own_copy, take_approval
from amplifier_kit.tools.effects import EXECUTE, WRITE

from .commands import BASH
from .config import ApprovalSettings
from .verdict import GuardedCall

logger = logging.getLogger(__name__)

NEEDS_CHECK = "approval.needs_check"
REQUIRED_TOOLS = "require_approval_tools"

_RISKY = frozenset({WRITE, EXECUTE})


def needs_approval(call: GuardedCall, settings: ApprovalSettings, coordinator: Any) -> bool:
    """True if a call has to be approved; `says_yes` is the application's own opinion.

    A tool is known by its own name and by what it does, not only by the name it is mounted under.
    """
    names = {call.tool_name, call.identity}
    if _is_listed(names, coordinator):
        return True
    if settings.policy_driven_only and call.level is None:
        return False
    if BASH in names or _demands_it_itself(call.tool):
        return True
    if not names.isdisjoint(settings.requires_approval):
        return any(settings.requires_approval.get(name, False) for name in names)
    if names & settings.high_risk_tools:
        return True
    return call.tool is not None and not _RISKY.isdisjoint(call.effects)


def _is_listed(names: Collection[str], coordinator: Any) -> bool:
    """True if the application's own list has the tool."""
    state = getattr(coordinator, "session_state", None)
    required = state.get(REQUIRED_TOOLS) if isinstance(state, (dict, Mapping)) else None
    if required is None:
        return False
    if isinstance(required, str) or not isinstance(required, Collection):
        logger.error("hooks-approval: %s is %r, not a set or list; everything is asked", REQUIRED_TOOLS, required)
        return True
    return any(name in required for name in names)


async def says_yes(needs_check: Callable[[str], Any], call: GuardedCall) -> bool:
    """True if the application's own check, the capability `approval.needs_check`, wants a call to be approved."""
    names = {call.tool_name, call.identity}
    message, named = "hooks-approval: %s failed; %s has to be approved: %s", ", ".join(sorted(names))
    with Boundary(logger, message, NEEDS_CHECK, named, level=logging.ERROR):
        for name in sorted(names):
            if await settle(needs_check(name)):
                return True
        return False
    return True


def _demands_it_itself(tool: Any) -> bool:
    if getattr(tool, "require_approval", False):
        return True
    described = getattr(tool, "get_metadata", None)
    if callable(described):
        is_marked = True
        message = "hooks-approval: a tool cannot describe itself; it has to be approved: %s"
        with Boundary(logger, message, level=logging.ERROR):
            is_marked = _is_marked(described())
        if is_marked:
            return True
    return _is_marked(getattr(tool, "metadata", None))


def _is_marked(metadata: Any) -> bool:
    return metadata is not None and isinstance(metadata, Mapping) and bool(metadata.get("requires_approval"))


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
