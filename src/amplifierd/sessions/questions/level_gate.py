"""The host's own gate: it holds a session to its permission level, whatever modules the session has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from amplifier_core import HookResult, ModuleCoordinator, ToolResult
from amplifier_core.events import PROVIDER_REQUEST, TOOL_PRE
from amplifier_core.mount_plan import MountPlan
from amplifier_kit.tools.effects import effects_of
from amplifier_kit.tools.permission_levels import PERMISSIONS, Permissions, refusal
from amplifierd.sessions.events.journal import GO_ON

APPROVAL_HOOK = "hooks-approval"

_NAME = "session-permissions"
_AFTER_ALL_OTHERS = 999_999  # what may still change a call comes before; the guard, which asks, comes after
_GUIDANCE_PRIORITY = 10
_GUIDANCE = (
    '<system-reminder source="permission-level">\n'
    "The permission level of this session is plan: read and search as much as you need, but nothing is written or"
    " executed. End with a plan: what you would change, in which files, in which order, and how you would check it. The"
    " person then accepts the plan, edits it, or sends it back.\n"
    "</system-reminder>"
)


class LevelGate:
    """Refuses what the level of one session forbids, and says so to the model before it tries."""

    def __init__(self, permissions: Permissions, coordinator: ModuleCoordinator) -> None:
        self._permissions, self._coordinator = permissions, coordinator
        coordinator.register_capability(PERMISSIONS, permissions)
        hooks = coordinator.hooks
        hooks.register(TOOL_PRE, self._judge, priority=_AFTER_ALL_OTHERS, name=_NAME)
        hooks.register(PROVIDER_REQUEST, self._guide, priority=_GUIDANCE_PRIORITY, name=_NAME)

    def stand_before_tools(self) -> None:
        """See every call of a tool before it runs, also those that no loop announces."""
        self._coordinator.intercept_tools(_NAME, self._see)

    async def _judge(self, event: str, data: dict[str, Any]) -> HookResult:
        if self._permissions.level != "plan":
            return GO_ON
        name = str(data.get("tool_name") or "")
        tools = self._coordinator.get("tools") or {}
        why = self._refusal(name, tools.get(name), data.get("tool_input"))
        return GO_ON if why is None else HookResult(action="deny", reason=why)

    async def _guide(self, event: str, data: dict[str, Any]) -> HookResult:
        if self._permissions.level != "plan":
            return GO_ON
        return HookResult(
            action="inject_context",
            context_injection=_GUIDANCE,
            context_injection_role="system",
            ephemeral=True,
            suppress_output=True,
        )

    async def _see(self, tool_name: str, tool: Any, tool_input: Any, proceed: Callable[[Any], Awaitable[Any]]) -> Any:
        why = self._refusal(tool_name, tool, tool_input)
        if why is None:
            return await proceed(tool_input)
        return ToolResult(success=False, error={"message": f"Denied: {why}", "code": "denied"})

    def _refusal(self, name: str, tool: Any, tool_input: Any) -> str | None:
        level = self._permissions.level
        if level != "plan":
            return None
        own_name = getattr(tool, "name", None)
        identity = own_name if isinstance(own_name, str) else name
        given = tool_input if isinstance(tool_input, Mapping) else {}
        return refusal(level, effects_of(tool, identity, given), name)


def with_guard(plan: dict[str, Any]) -> dict[str, Any]:
    """A plan whose session has the approval hook, without which a level has nobody to ask."""
    read = MountPlan(plan)
    if read.find(APPROVAL_HOOK, section="hooks") is not None:
        return plan
    return {**plan, "hooks": [*read.lists()["hooks"], {"module": APPROVAL_HOOK, "required": True}]}
