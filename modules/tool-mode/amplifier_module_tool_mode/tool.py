"""The tool `mode`."""

import copy
from collections.abc import Mapping
from typing import Any, ClassVar

from amplifier_core import HookResult, ToolResult
from amplifier_core.boundary import emit_quietly
from amplifier_core.events import TOOL_PRE
from amplifier_core.exceptions import AmplifierError
from amplifier_kit.config import LenientConfig
from amplifier_kit.tools.input import ToolFailure, read_input
from amplifier_kit.tools.runs import AnsweringTool

MODULE_ID = "tool-mode"

TRANSITION_DENIED, GATED = "mode:transition_denied", "mode:activation_gated"
EVENTS = (TRANSITION_DENIED, GATED)

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "operation": {
            "type": "string",
            "enum": ["set", "clear", "list", "current"],
            "description": "set enters a mode, clear leaves it, list shows all, current shows the one that is on.",
        },
        "name": {"type": "string", "description": "The mode to enter, for set."},
    },
    "required": ["operation"],
}
_LEAVE = "\0leave"


class ModeTool(AnsweringTool):
    """Enters and leaves modes of the session; the gate decides whether the model may do that by itself."""

    name = "mode"
    description = (
        "List, enter and leave modes. A mode restricts the tools and says how to work while it is on; one at a time is"
        " on. Enter one when the person asks for that way of working or the task calls for it."
    )
    effects: ClassVar[frozenset[str]] = frozenset()  # it changes nothing but the session itself
    retry = "safe"  # entering a mode twice is entering it

    def __init__(self, config: Mapping[str, Any] | None = None, coordinator: Any = None) -> None:
        read = LenientConfig(MODULE_ID, config)
        self.gate_policy = read.choice("gate_policy", "warn", ("auto", "warn", "confirm"))
        read.warn_unknown()
        self._coordinator = coordinator
        self._gated: set[str] = set()

    @property
    def input_schema(self) -> dict[str, Any]:
        return copy.deepcopy(_SCHEMA)

    async def answer(self, given: Any) -> ToolResult:
        """Do what is asked; a refusal is a result."""
        values = read_input(self.name, _SCHEMA, given)
        state = getattr(self._coordinator, "session_state", None)
        hooks = state.get("mode_hooks") if isinstance(state, dict) else None
        if hooks is None:
            raise ToolFailure("hooks-mode is not mounted in this session", "hooks_mode_not_mounted")
        match values["operation"]:
            case "list":
                return self._list(hooks)
            case "current":
                return self._current(hooks)
            case "set":
                return await self._set(hooks, str(values.get("name") or "").strip())
        return await self._clear(hooks)

    def _list(self, hooks: Any) -> ToolResult:
        active = hooks.active
        modes = [
            {"name": mode.name, "description": mode.description, "source": mode.source}
            for mode in hooks.discovery.list_modes()
            if mode.advertised
        ]
        return ToolResult(output={"active_mode": active.name if active is not None else None, "modes": modes})

    def _current(self, hooks: Any) -> ToolResult:
        mode = hooks.active
        if mode is None:
            return ToolResult(output={"active_mode": None, "message": "No mode is active."})
        return ToolResult(output={"active_mode": mode.name, **mode.summary()})

    async def _set(self, hooks: Any, name: str) -> ToolResult:
        if not name:
            raise ToolFailure("mode: set needs the name of a mode", "missing_name")
        mode = hooks.discovery.find(name)
        if mode is None:
            known = [each.name for each in hooks.discovery.list_modes() if each.advertised]
            message = f"mode: there is no mode {name!r}; there are {', '.join(known)}"
            raise ToolFailure(message, "mode_not_found", available_modes=known)
        before = hooks.active
        if before is not None and not _leads_to(before, mode):
            allowed = list(before.allowed_transitions)
            facts = {"from_mode": before.name, "to_mode": mode.name, "allowed_transitions": allowed}
            await self._emit(TRANSITION_DENIED, facts)
            where = ", ".join(allowed) or "nowhere; only the person ends it"
            raise ToolFailure(f"mode: from {before.name} it leads to {where}", "transition_denied")
        if (refusal := await self._gate(mode.name, mode.description, before)) is not None:
            return refusal
        try:
            entered = await hooks.activate(name)
        except AmplifierError as error:
            raise ToolFailure(f"mode: {error.message}", "activation_failed") from error
        self._gated.clear()
        restricted = [*entered.confirm_tools, *entered.warn_tools, *entered.block_tools]
        output = {
            "status": "activated",
            "mode": entered.name,
            "description": entered.description,
            "safe_tools": list(entered.safe_tools),
            "restricted_tools": restricted,
            "default_action": entered.default_action,
            "note": "Its guidance stands in every request from now on.",
        }
        if unknown := hooks.unknown_tools(entered):
            output["unknown_tools"] = {
                name: f"did you mean {near}?" if near else None for name, near in unknown.items()
            }
        return ToolResult(output=output)

    async def _clear(self, hooks: Any) -> ToolResult:
        mode = hooks.active
        if mode is None:
            return ToolResult(output={"status": "cleared", "previous_mode": None, "message": "No mode was active."})
        if not mode.allow_clear:
            raise ToolFailure(f"mode: {mode.name} is ended by the person only, with /mode off", "clear_denied")
        if (refusal := await self._gate(_LEAVE, "leave the mode", mode)) is not None:
            return refusal
        await hooks.clear()
        self._gated.clear()
        message = f"The mode {mode.name} has ended."
        return ToolResult(output={"status": "cleared", "previous_mode": mode.name, "message": message})

    async def _gate(self, target: str, description: str, before: Any) -> ToolResult | None:
        """Return the refusal of a change of mode, None where it may go on."""
        if self.gate_policy == "auto" or (self.gate_policy == "warn" and target in self._gated):
            return None
        shown = None if target == _LEAVE else target
        facts = {"gate_policy": self.gate_policy, "target_mode": shown, "description": description}
        await self._emit(GATED, {**facts, "from_mode": before.name if before is not None else None})
        if self.gate_policy == "confirm" and await self._is_confirmed(shown, before):
            return None
        self._gated.add(target)
        asked = f"enter the mode {shown}" if shown else f"leave the mode {before.name}"
        if self.gate_policy == "confirm":
            told = f"The person has not agreed to {asked}."
        else:
            told = f"Say why you want to {asked}; if it is appropriate, ask for it again."
        output = {"status": "denied", "target_mode": shown, "user_instruction": told}
        return ToolResult(success=False, output=output, error={"message": told, "code": "gated"})

    async def _is_confirmed(self, target: str | None, before: Any) -> bool:
        process = getattr(self._coordinator, "process_hook_result", None)
        if process is None:
            return False
        question = f"Enter the mode {target}?" if target else f"Leave the mode {before.name}?"
        asked = HookResult(action="ask_user", approval_prompt=question, approval_default="deny")
        answer = await process(asked, TOOL_PRE, MODULE_ID)
        return getattr(answer, "action", None) == "continue"

    async def _emit(self, event: str, data: dict[str, Any]) -> None:
        await emit_quietly(getattr(self._coordinator, "hooks", None), event, data)


def _leads_to(before: Any, mode: Any) -> bool:
    """True where the model may go from one mode to another."""
    allowed = before.allowed_transitions
    return allowed is None or mode.name == before.name or bool(mode.names & set(allowed))
