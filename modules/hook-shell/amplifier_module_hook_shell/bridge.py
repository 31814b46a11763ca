"""The hook between a session's events and the hooks that are declared for them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from amplifier_core import HookResult
from amplifier_core.boundary import Boundary
from amplifier_kit.config import LenientConfig, ModuleConfig
from amplifier_kit.injection import NOTHING, reminder
from amplifier_kit.mounting import find_function, session_id_of, working_dir
from amplifier_kit.sandbox.limits import read_mode
from amplifier_kit.tools.permission_levels import permissions_of

from .declarations import GUARD_EVENTS, Action, Group, of_skill, read_places
from .protocol import BLOCKING_EVENTS, PERMISSION_MODES, Reply, fields_of, subject_of
from .runner import Runner

MODULE_ID = "hook-shell"
TRUST = "project.is_trusted"
"""The capability that says whether a person trusts a directory with the content that it has."""

Handler = Callable[[str, dict[str, Any]], Awaitable[HookResult]]

_EVENTS: Mapping[str, str] = {
    "tool:pre": "PreToolUse",
    "tool:post": "PostToolUse",
    "prompt:submit": "UserPromptSubmit",
    "prompt:complete": "Stop",
    "context:pre_compact": "PreCompact",
    "approval:required": "PermissionRequest",
    "session:start": "SessionStart",
    "session:resume": "SessionStart",
    "session:end": "SessionEnd",
    "user:notification": "Notification",
    "delegate:agent_spawned": "SubagentStart",
    "delegate:agent_completed": "SubagentStop",
}
_ANSWERED_AT_ONCE = ("tool:pre", "tool:post", "prompt:submit")
_SOURCES = {"session:start": "startup", "session:resume": "resume"}
_PRIORITY, _BEFORE_APPROVAL = 20, -30
_MOST_INPUTS = 64
_ON_ERROR = ("allow", "deny")

logger = logging.getLogger(__name__)


class ShellHookBridge:
    """Runs the hooks of an event, all of them, and answers for them together: a denial wins, contexts are joined."""

    def __init__(self, coordinator: Any, config: Mapping[str, Any] | None = None) -> None:
        self._coordinator = coordinator
        read = ModuleConfig(MODULE_ID, config, is_guard=True)
        self.enabled = read.boolean("enabled", True)
        self._timeout_s = read.number("timeout", 30.0, above=0)
        self._is_blocking = read.boolean("allow_blocking", True)
        trusts = read.boolean("trust_project", False)
        self._trusts: bool | None = trusts if read.is_set("trust_project") else None
        self._with_project = trusts
        self._with_claude = read.boolean("read_claude_settings", False)
        self._on_error = read.choice("on_error", "", _ON_ERROR, when_unusable="deny")
        self._folders = read.strings("directories", list[str]())
        read.accept("sandbox")
        read.warn_unknown()
        sandbox = {"sandbox": config["sandbox"]} if isinstance(config, Mapping) and "sandbox" in config else {}
        self._project = working_dir(coordinator)
        self._runner = Runner(coordinator, self._project, read_mode(LenientConfig(MODULE_ID, sandbox), default="auto"))
        self._groups: list[Group] = []
        self._of_skills: dict[str, list[Group]] = {}
        self._waiting: list[str] = []  # contexts of events at which nothing can be said to the model
        self._inputs: dict[str, Any] = {}  # of calls that an approval may be asked for
        # By the task in which an event is offered: what else is answered to it, beside a changed input.
        self._second: WeakKeyDictionary[asyncio.Task[Any], HookResult] = WeakKeyDictionary()

    def load(self) -> None:
        """Read what is declared; it counts for the whole session."""
        if self._trusts is None and callable(ask := find_function(self._coordinator, TRUST)):
            with Boundary(logger, "whether the project is trusted is not known: %s"):
                self._with_project = ask(self._project) is True
        self._groups = list(
            read_places(
                Path.home(),
                self._project,
                with_project=self._with_project,
                with_claude=self._with_claude,
                with_projects_claude=self._with_claude and self._trusts is True,
                folders=[self._project / Path(folder).expanduser() for folder in self._folders],
            )
        )
        if not self._with_project and (self._project / ".amplifier/hooks").is_dir():
            logger.info("hook-shell: the hooks of %s do not run: it is not trusted", self._project)

    def close(self) -> None:
        self._runner.close()

    def handlers(self) -> Iterator[tuple[str, str, Handler, int]]:
        """Yield events with the names, handlers and priorities that belong to them."""
        for event in _EVENTS:
            yield event, MODULE_ID, self.handle, _PRIORITY
        yield "tool:pre", f"{MODULE_ID}-context", self.add, _PRIORITY
        if self._has("PermissionRequest"):
            yield "tool:pre", f"{MODULE_ID}-call", self.note_call, _BEFORE_APPROVAL
        yield "provider:request", f"{MODULE_ID}-context", self.tell, _PRIORITY
        yield "skill:loaded", MODULE_ID, self.skill_loaded, _PRIORITY
        yield "skill:unloaded", MODULE_ID, self.skill_unloaded, _PRIORITY

    # --- handlers

    async def note_call(self, event: str, data: dict[str, Any]) -> HookResult:
        """Keep the input of a call until it has run: the event that asks for an approval does not have it."""
        if self._has("PermissionRequest") and type(data) is dict and isinstance(data.get("tool_call_id"), str):
            self._inputs[data["tool_call_id"]] = data.get("tool_input")
            while len(self._inputs) > _MOST_INPUTS:
                del self._inputs[next(iter(self._inputs))]
        return NOTHING

    async def handle(self, event: str, data: dict[str, Any]) -> HookResult:
        """Run the hooks that are declared for an event."""
        if not (self._groups or self._of_skills):
            return NOTHING
        name = _EVENTS[event]
        if self._second:
            self._take_second()  # of an event whose round ended early
        if event == "tool:pre":
            await self.note_call(event, data)  # as handlers before have left it
        if not self._has(name):
            return NOTHING
        given = {**data, **({"source": _SOURCES[event]} if event in _SOURCES else {})} if type(data) is dict else {}
        if name == "PermissionRequest" and "tool_input" not in given:
            given["tool_input"] = self._inputs.get(str(given.get("tool_call_id")))
        replies, tool_input = await self._run(name, given)
        if name == "PostToolUse" and _has_failed(given):
            further, _ = await self._run("PostToolUseFailure", given)
            replies += further
        return self._answer(event, name, given, replies, tool_input)

    async def add(self, event: str, data: dict[str, Any]) -> HookResult:
        """Give the part of the answer that the first handler of the event had no place for."""
        return self._take_second() if self._second else NOTHING

    async def tell(self, event: str, data: dict[str, Any]) -> HookResult:
        """Tell the model what hooks said at events before."""
        if not self._waiting:
            return NOTHING
        said, self._waiting = self._waiting, []
        return _context("\n\n".join(said))

    async def skill_loaded(self, event: str, data: dict[str, Any]) -> HookResult:
        """Run the hooks of a skill from now on."""
        if type(data) is dict and data.get("hooks"):
            name, folder = data.get("skill_name"), data.get("skill_directory")
            if isinstance(name, str) and isinstance(folder, str | Path) and str(folder):
                self._of_skills[name] = await asyncio.to_thread(self._of_skill, name, Path(folder), data["hooks"])
        return NOTHING

    def _of_skill(self, name: str, folder: Path, hooks: Any) -> list[Group]:
        is_inside = folder.resolve().is_relative_to(self._project.resolve())
        if is_inside and not self._with_project:
            logger.warning("hook-shell: the hooks of the skill %r do not run: the project is not trusted", name)
            return []
        return list(of_skill(hooks, folder, "project" if is_inside else "user"))

    async def skill_unloaded(self, event: str, data: dict[str, Any]) -> HookResult:
        """Run the hooks of a skill no more."""
        if type(data) is dict and isinstance(name := data.get("skill_name"), str):
            self._of_skills.pop(name, None)
        return NOTHING

    def _take_second(self) -> HookResult:
        task = asyncio.current_task()
        return NOTHING if task is None else self._second.pop(task, NOTHING)

    # --- running

    def _has(self, name: str) -> bool:
        return any(group.event.startswith(name) for group in self._all())

    def _all(self) -> Iterator[Group]:
        yield from self._groups
        for groups in self._of_skills.values():
            yield from groups

    async def _run(self, name: str, data: Mapping[str, Any]) -> tuple[list[Reply], Mapping[str, Any] | None]:
        """Run the hooks of an event; returns their replies, and the input of the tool if they changed it."""
        given: Mapping[str, Any] = data
        replies: list[Reply] = []
        updated: Mapping[str, Any] | None = None
        for group in [each for each in self._all() if each.event == name and each.matches(subject_of(name, data))]:
            batches = [group.actions] if group.is_parallel else [(action,) for action in group.actions]
            for batch in batches:
                said = await asyncio.gather(*(self._one(name, group, action, given) for action in batch))
                replies += said
                for change in (each.updated_input for each in said if each.updated_input is not None):
                    updated = change
                    given = {**given, "tool_input": change}
        return replies, updated if name == "PreToolUse" else None

    async def _one(self, name: str, group: Group, action: Action, data: Mapping[str, Any]) -> Reply:
        reply = Reply(error="it failed")
        with Boundary(logger, "a hook of %s in %s could not run: %s", name, group.place.folder) as boundary:
            reply = await self._asked(name, group, action, data)
        if boundary.error is not None:
            reply = Reply(error=f"{type(boundary.error).__name__}: {boundary.error}")
        if not reply.error:
            if reply.message:
                logger.warning("hook-shell: %s", reply.message)
            return reply
        logger.warning("hook-shell: a hook of %s could not run: %s", name, reply.error)
        is_guard = name in GUARD_EVENTS and group.place.origin == "project"
        on_error = self._on_error or ("deny" if is_guard else "allow")
        return Reply("deny", f"a hook could not run: {reply.error}") if on_error == "deny" else Reply()

    async def _asked(self, name: str, group: Group, action: Action, data: Mapping[str, Any]) -> Reply:
        if action.kind == "broken":
            return Reply(error=action.text)
        if changed := await asyncio.to_thread(group.place.changed):
            return Reply(error=f"{changed[0]} has changed since the session began")
        timeout_s = action.timeout_s or self._timeout_s
        payload = self._payload(name, data)
        if action.kind == "prompt":
            return await self._runner.prompt(action.text, payload, timeout_s=timeout_s)
        return await self._runner.command(action.text, group.place, payload, event=name, timeout_s=timeout_s)

    def _payload(self, name: str, data: Mapping[str, Any]) -> dict[str, Any]:
        permissions = permissions_of(self._coordinator)
        level = permissions.level if permissions is not None else None
        return {
            "session_id": session_id_of(self._coordinator) or "",
            "transcript_path": "",
            "cwd": str(self._project),
            "permission_mode": PERMISSION_MODES[level or "ask"],
            "hook_event_name": name,
            "timestamp": data.get("timestamp"),
            **fields_of(name, data),
        }

    # --- answering

    def _answer(
        self,
        event: str,
        name: str,
        data: dict[str, Any],
        replies: list[Reply],
        tool_input: Mapping[str, Any] | None,
    ) -> HookResult:
        is_quiet = any(reply.is_quiet for reply in replies)
        for reply in replies:
            if reply.message:
                self._show(reply.message)
        denials = [reply.reason for reply in replies if reply.decision == "deny"]
        contexts = [reply.context for reply in replies if reply.context]
        if denials and name in BLOCKING_EVENTS and self._is_blocking:
            return HookResult(action="deny", reason="\n".join(denials), suppress_output=is_quiet)
        contexts += denials
        questions = [reply.reason for reply in replies if reply.decision == "ask"] if name == "PreToolUse" else []
        second = self._question(data, questions, contexts) if questions else self._told(event, contexts, is_quiet)
        if tool_input is None:
            return second
        if second is not NOTHING and (task := asyncio.current_task()) is not None:
            self._second[task] = second
        if data.get("tool_call_id") in self._inputs:
            self._inputs[data["tool_call_id"]] = dict(tool_input)
        return HookResult(action="modify", data={**data, "tool_input": dict(tool_input)})

    def _question(self, data: Mapping[str, Any], questions: list[str], contexts: list[str]) -> HookResult:
        self._waiting += contexts
        asked = next(filter(None, questions), "") or f"A hook asks: may {data.get('tool_name')} run?"
        return HookResult(action="ask_user", approval_prompt=asked, approval_default="deny", reason=asked)

    def _told(self, event: str, contexts: list[str], is_quiet: bool) -> HookResult:
        if contexts and event in _ANSWERED_AT_ONCE:
            return _context("\n\n".join(contexts), is_quiet=is_quiet)
        self._waiting += contexts
        return NOTHING

    def _show(self, message: str) -> None:
        display = getattr(self._coordinator, "display_system", None)
        with Boundary(logger, "the message of a hook could not be shown: %s"):
            if callable(show := getattr(display, "show_message", None)):
                show(message, "warning", MODULE_ID)


def _context(text: str, *, is_quiet: bool = True) -> HookResult:
    return HookResult(
        action="inject_context",
        context_injection=reminder(MODULE_ID, text),
        context_injection_role="user",
        suppress_output=is_quiet,
    )


def _has_failed(data: Mapping[str, Any]) -> bool:
    result = data.get("tool_result", data.get("result"))
    return isinstance(result, Mapping) and result.get("success") is False
