"""What a mode does while it is on: it judges tool calls, speaks to the model, and is kept with its session."""

import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from amplifier_core import HookResult, ToolResult
from amplifier_core.boundary import Boundary, emit_quietly
from amplifier_core.exceptions import AmplifierError
from amplifier_core.tool_interception import ToolInterceptor
from amplifier_kit.approval import GATE
from amplifier_kit.config import ModuleConfig
from amplifier_kit.injection import NOTHING, injected, reminder
from amplifier_kit.mounting import find_capability, find_mounted, session_id_of, working_dir
from amplifier_kit.policy import PolicyError, session_policy
from amplifier_kit.tools.permission_levels import permissions_of

from .definition import ModeDefinition
from .discovery import ModeDiscovery

MODULE_ID = "hooks-mode"

ACTIVE, APPROVAL = "active_mode", "require_approval_tools"
RECORD, OVERLAY = "session.record", "session.runtime_overlay"
BLOCKED, WARNED, INJECTED = "mode:tool_blocked", "mode:tool_warned", "mode:context_injected"
COMPLETED, FAILED = "mode:transition_completed", "mode:activation_failed"
ACTIVATED, CHANGED, CLEARED = "mode:activated", "mode:changed", "mode:cleared"
EVENTS = (BLOCKED, WARNED, INJECTED, COMPLETED, FAILED, ACTIVATED, CHANGED, CLEARED)

_INFRASTRUCTURE = ["mode", "todo"]
_ACCESS = {"agents": ("delegate", "task"), "skills": ("load_skill",)}
_LONGEST_MENTIONED = 200_000

logger = logging.getLogger(__name__)


class ModeError(AmplifierError):
    """A mode cannot be entered; the message says why."""


class ModeHooks:
    """Holds one session, and those below it, to the mode whose name stands in `session_state["active_mode"]`.

    Whoever sets that name need say nothing else: what it means is looked up at the next prompt, request or call.
    """

    def __init__(self, coordinator: Any, config: Mapping[str, Any] | None = None) -> None:
        read = ModuleConfig(MODULE_ID, config, is_guard=True)
        search_paths = read.strings("search_paths", list[str]())
        self.infrastructure = tuple(_infrastructure(read))
        self.strict = read.boolean("strict", True, when_unusable=True)
        read.warn_unknown()
        self._coordinator = coordinator
        self.discovery = ModeDiscovery(search_paths, coordinator)
        self._applied: ModeDefinition | None = None
        self._is_failed = False
        self._had_mode = False
        self._own_approvals: frozenset[str] = frozenset()
        self._warned: set[tuple[str | None, str, str]] = set()
        self._shown = ""
        self._overlay: Any = None

    # --- which mode is on

    @property
    def _state(self) -> dict[str, Any]:
        state = getattr(self._coordinator, "session_state", None)
        return state if isinstance(state, dict) else {}

    @property
    def active(self) -> ModeDefinition | None:
        """The mode that holds now."""
        name = self._state.get(ACTIVE)
        if not isinstance(name, str) or not name:
            return None
        if (found := self.discovery.find(name)) is not None:
            return found
        if self._applied is not None and name in self._applied.names:
            return self._applied
        return self._stored(name)

    def restore(self) -> None:
        """Go on in the mode that the session was left in."""
        record = find_capability(self._coordinator, RECORD)
        name = record.get(ACTIVE) if callable(getattr(record, "get", None)) else None
        if isinstance(name, str) and name and not self._state.get(ACTIVE):
            self._state[ACTIVE] = name

    def _stored(self, name: str) -> ModeDefinition:
        """Return a mode whose file is gone as it was stored; one that was never stored allows nothing."""
        record = find_capability(self._coordinator, RECORD)
        policy = record.get("mode_policy") if callable(getattr(record, "get", None)) else None
        if isinstance(policy, Mapping) and policy.get("name") and name in (policy.get("name"), policy.get("stem")):
            logger.warning("hooks-mode: the file of the mode %r is gone; what it forbade stays forbidden", name)
            return ModeDefinition.from_policy(policy)
        logger.warning("hooks-mode: there is no mode %r; no tool is allowed until it is ended", name)
        return ModeDefinition(name, "its file is gone", "unknown")

    async def activate(self, name: str) -> ModeDefinition:
        """Enter a mode, as a person or a tool asks for it.

        Raises:
            ModeError: there is none of that name, or it cannot work in this session.
        """
        mode = self.discovery.find(name)
        if mode is None:
            known = ", ".join(listed.name for listed in self.discovery.list_modes() if listed.advertised)
            raise ModeError(f"there is no mode {name!r}; there are {known}")
        if problem := self.problem_of(mode):
            await self._emit(FAILED, {"mode": mode.name, "error": problem})
            raise ModeError(problem)
        before = self.active
        facts = {**mode.summary(), "unknown_tools": self.unknown_tools(mode)}
        if before is None:
            await self._emit(ACTIVATED, {"name": mode.name, "mode": mode.name, **facts})
        elif before.name != mode.name:
            old, new = before.name, mode.name
            told = {"old": old, "new": new, "from_mode": old, "to_mode": new, "name": new, "mode": new}
            await self._emit(CHANGED, {**told, **facts})
        self._state[ACTIVE] = mode.stem or mode.name
        await self.follow()
        if self._is_failed:
            raise ModeError(f"the mode {mode.name!r} cannot be entered: what it contributes cannot be loaded")
        return mode

    async def clear(self) -> ModeDefinition | None:
        """Leave the mode; returns the one that was left."""
        before = self.active
        if before is not None:
            await self._emit(CLEARED, {"name": before.name, "previous_mode": before.name})
        self._state[ACTIVE] = None
        await self.follow()
        return before

    def unknown_tools(self, mode: ModeDefinition) -> dict[str, str | None]:
        """Return the tools that a mode lists and nobody mounted, each with the nearest that is."""
        return mode.unknown_tools(self._mounted())

    def problem_of(self, mode: ModeDefinition) -> str | None:
        """Return why a mode cannot be entered in this session, None where it can."""
        if not self.strict:
            return None
        if mode.is_hollow(self._mounted()):
            return f"the mode {mode.name!r} allows only tools that this session does not have"
        for kind, tools in _ACCESS.items():
            if mode.contributes.get(kind) and not any(self._is_usable(mode, tool) for tool in tools):
                return f"the mode {mode.name!r} contributes {kind}, and allows no tool that reaches them"
        return None

    def _is_usable(self, mode: ModeDefinition, tool: str) -> bool:
        return tool in self._mounted() and mode.judge((tool,), None, self.infrastructure)[0] != "block"

    def _mounted(self) -> Iterable[str]:
        tools = find_mounted(self._coordinator, "tools")
        return tuple(tools) if isinstance(tools, Mapping) else ()

    # --- what follows from it

    async def follow(self) -> ModeDefinition | None:
        """Bring everything in line with the mode that is on, and return that."""
        mode, before = self.active, self._applied
        self._ask_for(mode)
        if mode is not None and before is not None and mode == before:
            return mode
        if mode is None and before is None:
            return None
        is_same = mode is not None and before is not None and mode.name == before.name
        if not is_same:
            self.reset_warnings()
        self._applied, self._had_mode, self._is_failed = mode, True, False
        if not await self._contribute(mode, before):
            self._is_failed = True
            self._state[ACTIVE] = None
            self._applied = None
            self._ask_for(None)
            mode = None
        self._narrow(mode)
        await self._keep(mode)
        if not is_same and not self._is_failed:
            if before is not None:
                await self._emit(COMPLETED, {"mode": before.name, "phase": "ended"})
            if mode is not None:
                await self._emit(COMPLETED, {"mode": mode.name, "phase": "begun"})
        return mode

    def _ask_for(self, mode: ModeDefinition | None) -> None:
        """Have the approval hook ask about what the mode wants confirmed, beside what others want to be asked about."""
        wanted = frozenset(_confirmed(mode, self._mounted())) if mode is not None else frozenset[str]()
        others = self._state.get(APPROVAL)
        if not wanted and not self._own_approvals:
            return
        rest = set(others) - self._own_approvals if isinstance(others, set | frozenset | list | tuple) else set()
        self._state[APPROVAL] = rest | wanted
        self._own_approvals = wanted

    def _narrow(self, mode: ModeDefinition | None) -> None:
        permissions = permissions_of(self._coordinator)
        if permissions is not None:
            permissions.narrow(MODULE_ID, mode.permissions if mode is not None else None)

    async def _contribute(self, mode: ModeDefinition | None, before: ModeDefinition | None) -> bool:
        """Add what a mode contributes in place of what the one before did; False where that failed."""
        make = find_capability(self._coordinator, OVERLAY)
        if self._overlay is None:
            if mode is None or not mode.contributes or not callable(make):
                return True
            self._overlay = make(success_event="mode:contributions_changed", failure_event="mode:contributions_failed")
            self._state["mode_runtime_overlay"] = self._overlay
        if before is not None and (mode is None or mode.name != before.name):
            await self._overlay.revoke(f"mode:{before.name}")
        if mode is None:
            return True
        result = await self._overlay.apply(f"mode:{mode.name}", mode.contributes)
        if not result.success:
            logger.warning("hooks-mode: the mode %r cannot be entered: %s", mode.name, result.error)
            await self._emit(FAILED, {"mode": mode.name, "error": result.error})
        return bool(result.success)

    async def _keep(self, mode: ModeDefinition | None) -> None:
        """Keep the mode with the session, so that it holds after a crash too."""
        record = find_capability(self._coordinator, RECORD)
        if not callable(getattr(record, "set", None)):
            return
        name = (mode.stem or mode.name) if mode is not None else None
        message = "hooks-mode: the mode could not be stored with its session: %s"
        with Boundary(logger, message, level=logging.ERROR):
            await record.set(active_mode=name, mode_policy=mode.policy() if mode is not None else None)

    # --- calls of tools

    def reset_warnings(self) -> None:
        """Warn of every tool again."""
        self._warned.clear()

    async def judge_call(self, event: str, data: dict[str, Any]) -> HookResult:
        """Answer `tool:pre`."""
        try:
            await self.follow()
            name = str(data.get("tool_name") or "")
            tools = find_mounted(self._coordinator, "tools")
            tool = tools.get(name) if isinstance(tools, Mapping) else None
            reason = await self._refusal(self._coordinator, name, tool, data.get("tool_input"))
        except Exception as error:
            logger.exception("hooks-mode: a call is denied because the mode cannot be asked")
            reason = f"the mode of this session cannot be asked ({type(error).__name__}); /mode off ends it"
        return NOTHING if reason is None else HookResult(action="deny", reason=reason)

    def guard_of(self, coordinator: Any) -> ToolInterceptor:
        """Return what holds a session below this one to the mode, at each call of its tools; events are its own."""

        async def see(tool_name: str, tool: Any, tool_input: Any, proceed: Callable[[Any], Awaitable[Any]]) -> Any:
            await self.follow()
            reason = await self._refusal(coordinator, tool_name, tool, tool_input)
            if reason is None:
                return await proceed(tool_input)
            return ToolResult(success=False, error={"message": f"Denied by hook: {reason}", "code": "denied"})

        return see

    async def see_own(
        self, tool_name: str, tool: Any, tool_input: Any, proceed: Callable[[Any], Awaitable[Any]]
    ) -> Any:
        """Let no call run that the mode blocks, whoever makes it and without a word to hooks before."""
        mode = await self.follow()
        if mode is not None and mode.judge(_names(tool_name, tool), tool_input, self.infrastructure)[0] == "block":
            reason = _blocked(mode, tool_name)
            return ToolResult(success=False, error={"message": f"Denied by hook: {reason}", "code": "denied"})
        return await proceed(tool_input)

    async def _refusal(self, coordinator: Any, tool_name: str, tool: Any, tool_input: Any) -> str | None:
        """Return why a call does not run in the mode, None where it may."""
        mode = self._applied
        if mode is None:
            return None
        answer, rule = mode.judge(_names(tool_name, tool), tool_input, self.infrastructure)
        hooks = getattr(coordinator, "hooks", None)
        if answer == "block":
            await emit_quietly(hooks, BLOCKED, {"tool_name": tool_name, "mode": mode.name, "reason": rule})
            return _blocked(mode, tool_name)
        if answer == "confirm" and find_capability(self._coordinator, GATE) is None:
            await emit_quietly(hooks, BLOCKED, {"tool_name": tool_name, "mode": mode.name, "reason": "nobody_to_ask"})
            return (
                f"mode {mode.name}: {tool_name} needs a person's yes, and nobody can be asked here; /mode off ends it"
            )
        if answer != "warn":
            return None
        called = (session_id_of(coordinator), mode.name, tool_name)
        outcome = "allowed" if called in self._warned else "denied"
        self._warned.add(called)
        await emit_quietly(hooks, WARNED, {"tool_name": tool_name, "mode": mode.name, "outcome": outcome})
        if outcome == "allowed":
            return None
        return (
            f"mode {mode.name}: {tool_name} is used with care in this mode. If it is appropriate, call it again;"
            " /mode off ends the mode"
        )

    # --- what the model reads

    async def guide(self, event: str, data: dict[str, Any]) -> HookResult:
        """Show the model the mode that is on; once after one has ended, that there is none."""
        with Boundary(logger, "hooks-mode: a request goes on without the guidance of its mode: %s"):
            mode = await self.follow()
            if mode is None:
                return self._ended()
            text = await self._guidance(mode)
            digest = hashlib.sha256(text.encode()).hexdigest()
            if digest != self._shown:
                self._shown = digest
                facts = {"mode": mode.name, "context_length": len(text), "content_hash": digest}
                await self._emit(INJECTED, facts)
            return injected(reminder(f"mode-{mode.name}", text), "system")
        return NOTHING

    def _ended(self) -> HookResult:
        if not self._had_mode:
            return NOTHING
        self._had_mode, self._shown = False, ""
        return injected(reminder("mode-status", "The mode has ended: no mode is active any more."), "system")

    async def _guidance(self, mode: ModeDefinition) -> str:
        banner = f"MODE ACTIVE: {mode.name}\nThis mode is on already; you need not enter it."
        contributed = find_capability(self._coordinator, "runtime_context_overlay")
        mentions = [str(each) for each in contributed] if isinstance(contributed, list | tuple) else []
        parts = [banner, *(self._mentioned(mention) for mention in mentions), self._with_files(mode.context)]
        return "\n\n".join(part for part in parts if part)

    def _with_files(self, body: str) -> str:
        lines = [self._mentioned(line.strip()) if _is_mention(line) else line for line in body.split("\n")]
        return "\n".join(line for line in lines if line is not None).strip()

    def _mentioned(self, mention: str) -> str | None:
        """Return the text of a file that a line of its own mentions, None for one that cannot be read."""
        resolve = getattr(find_capability(self._coordinator, "mention_resolver"), "resolve", None)
        found = resolve(mention) if callable(resolve) else None
        try:
            if isinstance(found, Path) and found.is_file() and found.stat().st_size <= _LONGEST_MENTIONED:
                session_policy(self._coordinator, working_dir(self._coordinator)).check_read(found)
                return found.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError, PolicyError) as error:
            logger.warning("hooks-mode: %s cannot be read: %s", mention, error)
            return None
        logger.warning("hooks-mode: %s leads to no file", mention)
        return None

    async def _emit(self, event: str, data: dict[str, Any]) -> None:
        await emit_quietly(getattr(self._coordinator, "hooks", None), event, data)


def _infrastructure(config: ModuleConfig) -> list[str]:
    value = config.raw("infrastructure_tools")
    if value is None:
        return _INFRASTRUCTURE
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return value
    logger.warning("hooks-mode: infrastructure_tools is %r, not a list of names; %s count", value, _INFRASTRUCTURE)
    return _INFRASTRUCTURE


def _confirmed(mode: ModeDefinition, mounted: Iterable[str]) -> Iterable[str]:
    """Yield the tools that the mode wants confirmed, patterns resolved; one for some arguments only counts whole."""
    for name in (*mounted, *mode.confirm_tools):
        if mode.judge((name,), None, ())[0] == "confirm" or name in mode.confirm_tools:
            yield name
    for entry in mode.confirm_tools:
        if "(" in entry:
            yield entry.partition("(")[0]


def _names(tool_name: str, tool: Any) -> tuple[str, ...]:
    own = getattr(tool, "name", None)
    return (tool_name, own) if isinstance(own, str) and own != tool_name else (tool_name,)


def _blocked(mode: ModeDefinition, tool_name: str) -> str:
    return f"mode {mode.name} does not allow {tool_name}; /mode off ends the mode"


def _is_mention(line: str) -> bool:
    text = line.strip()
    return text.startswith("@") and ":" in text and " " not in text
