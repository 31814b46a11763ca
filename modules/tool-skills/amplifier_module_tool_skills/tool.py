"""The tool `load_skill`."""

import asyncio
import copy
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from amplifier_core import HookResult, ToolResult
from amplifier_core.boundary import Boundary, emit_quietly
from amplifier_core.utils.tool_messages import calls_in, results_in
from amplifier_kit.config import LenientConfig
from amplifier_kit.delegation.agents import SPAWN, plan_of
from amplifier_kit.delegation.conversation import DEFAULT_TURNS, DEPTHS, SCOPES
from amplifier_kit.injection import NOTHING
from amplifier_kit.mounting import find_capability, find_mounted, hook_registry, working_dir
from amplifier_kit.policy import PolicyError, session_policy
from amplifier_kit.tools.effects import READ
from amplifier_kit.tools.effects import SPAWN as SPAWNS
from amplifier_kit.tools.input import ToolFailure, read_input
from amplifier_kit.tools.runs import AnsweringTool

from .definition import Diagnostic, SkillMetadata, extract_skill_body
from .discovery import SkillsDiscovery, SkillSource
from .fork import carry_out
from .preparation import AllowShell, prepared_body

MODULE_ID = "tool-skills"

DISCOVERED, LOADED, UNLOADED = "skills:discovered", "skill:loaded", "skill:unloaded"
DIAGNOSTIC, FORKED = "skill:diagnostic", "skill:fork_completed"
EVENTS = (DISCOVERED, LOADED, UNLOADED, DIAGNOSTIC, FORKED)
FORK_CONTEXT, DIRECT = "skills.fork_context", "skills.direct_invocation"

logger = logging.getLogger(__name__)

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "skill_name": {"type": "string", "description": "The skill to load."},
        "list": {"type": "boolean", "description": "List all skills."},
        "search": {"type": "string", "description": "Find skills whose name or description has this text."},
        "info": {"type": "string", "description": "Show what is known of a skill, without loading it."},
        "source": {"type": "string", "description": "A further directory of skills, for this session."},
        "arguments": {"type": "string", "description": "What the skill is to be used with."},
        "context_depth": {
            "type": "string",
            "enum": list(DEPTHS),
            "default": "none",
            "description": "How much of the conversation a forked skill is told.",
        },
        "context_turns": {
            "type": "integer",
            "default": DEFAULT_TURNS,
            "description": "How many turns, with context_depth recent.",
        },
        "context_scope": {
            "type": "string",
            "enum": list(SCOPES),
            "default": "conversation",
            "description": "What is told: what was said, answers of agents too, or all results too.",
        },
    },
}
_NOTHING_ASKED = "load_skill: give skill_name, list, search, info or source"


class SkillsTool(AnsweringTool):
    """Finds, inspects and loads the skills of one session."""

    name: ClassVar[str] = "load_skill"
    description: ClassVar[str] = (
        "Find, inspect and load skills: instructions for a kind of task, with files beside them. Load one before you"
        " begin a task that it fits. A skill may be carried out in a session of its own; then you get its answer."
    )
    effects: ClassVar[frozenset[str]] = frozenset({READ, SPAWNS})

    def __init__(self, config: dict[str, Any] | None, coordinator: Any) -> None:
        self._coordinator = coordinator
        read = LenientConfig(MODULE_ID, config)
        sources = _sources(read, coordinator)
        self._allow_shell = _allow_shell(read.choice("allow_shell", "ask", _ALLOW_SHELL, when_unusable="never"))
        self.visibility = read.mapping("visibility", {})
        self.discovery = SkillsDiscovery(
            sources,
            coordinator,
            strict=read.choice("validate", "lenient", ("lenient", "strict")) == "strict",
            scans_agents_dirs=read.boolean("scan_agents_dirs", True),
            scans_claude_dirs=read.boolean("scan_claude_dirs", False),
        )
        read.warn_unknown()
        self.is_fork = _is_forked(coordinator)
        self._loaded: dict[str, SkillMetadata] = {}
        self._told: set[Diagnostic] = set()
        self._is_started = False

    @property
    def input_schema(self) -> dict[str, Any]:
        return copy.deepcopy(_SCHEMA)

    def effects_of(self, tool_input: Mapping[str, Any]) -> frozenset[str]:
        """Only a skill that is forked does more than read."""
        name = tool_input.get("skill_name")
        skill = self.discovery.find(name) if isinstance(name, str) else None
        return self.effects if skill is not None and skill.is_fork else frozenset({READ})

    # --- calls

    async def answer(self, given: Any) -> ToolResult:
        """Answer the model."""
        values = read_input(self.name, _SCHEMA, given)
        return await self._answer(values, is_direct=False)

    async def invoke(self, skill_name: str, arguments: str = "") -> ToolResult:
        """Load a skill as a person asks for it, also one that the model may not load."""
        try:
            values = read_input(self.name, _SCHEMA, {"skill_name": skill_name, "arguments": arguments})
            return await self._answer(values, is_direct=True)
        except ToolFailure as problem:
            return problem.result()

    async def _answer(self, values: dict[str, Any], *, is_direct: bool) -> ToolResult:
        added = ""
        if source := values.get("source"):
            added = await self._add(source)
        else:
            await self._look()
        if values.get("list"):
            return self._listed("skills", "")
        if search := values.get("search"):
            return self._listed("matches", search)
        if name := values.get("info"):
            return ToolResult(output=self._info(self._find(name)))
        if name := values.get("skill_name"):
            return await self._load(self._find(name), values, is_direct=is_direct)
        if added:
            return ToolResult(output=added)
        raise ToolFailure(_NOTHING_ASKED, "invalid_input")

    def _find(self, name: str) -> SkillMetadata:
        skill = self.discovery.find(name)
        if skill is None:
            names = [each for each, _ in self.discovery.list_skills()]
            message = f"Skill {name!r} not found. Available: {', '.join(names) or 'none'}"
            raise ToolFailure(message, "not_found", available=names)
        return skill

    def _listed(self, key: str, search: str) -> ToolResult:
        text = search.casefold()
        found = [
            {"name": name, "description": description}
            for name, description in self.discovery.list_skills()
            if text in name.casefold() or text in description.casefold()
        ]
        if key == "skills" and not found:
            return ToolResult(output={"message": "There are no skills in this session."})
        about = f" that match {search!r}" if search else ""
        return ToolResult(output={"message": f"{len(found)} skills{about}", key: found})

    def _info(self, skill: SkillMetadata) -> dict[str, Any]:
        facts = {
            "name": skill.name,
            "description": skill.description,
            "version": skill.version,
            "license": skill.license,
            "compatibility": skill.compatibility,
            "allowed_tools": _listing(skill.allowed_tools),
            "path": str(skill.path),
            "context": skill.context,
            "model_role": _listing(skill.model_role),
            "source": skill.source,
            "trusted": skill.trusted,
            "diagnostics": [each.to_dict() for each in self.discovery.diagnostics if each.path == str(skill.path)],
        }
        return {**facts, "metadata": _plain(skill.metadata)} if skill.metadata else facts

    async def _add(self, address: str) -> str:
        """Take in a source that the model names: it is read as its files would be, and nothing of it is run."""
        source = SkillSource(address, trusted=False)
        before = set(self.discovery.catalogue().skills)
        await asyncio.to_thread(self._check_readable, source)
        if problem := await asyncio.to_thread(self.discovery.problem_of, source):
            raise ToolFailure(problem.message, "source_unresolved")
        self.discovery.add_source(source)
        await self.announce()
        after = set(self.discovery.catalogue().skills)
        return f"{address}: {len(after)} skills in this session, {len(after - before)} of them new"

    def _check_readable(self, source: SkillSource) -> None:
        if source.is_remote or source.address.startswith("@"):
            return
        base = working_dir(self._coordinator)
        try:
            session_policy(self._coordinator, base).check_read(base / Path(source.address).expanduser())
        except PolicyError as error:
            raise ToolFailure(f"{source.address} cannot be read: {error}", "source_unresolved") from error

    # --- loading

    async def _load(self, skill: SkillMetadata, values: dict[str, Any], *, is_direct: bool) -> ToolResult:
        if skill.disable_model_invocation and not is_direct and find_capability(self._coordinator, DIRECT):
            message = f"The skill {skill.name!r} is for people to invoke: ask the person to type /{skill.name}"
            raise ToolFailure(message, "invalid_input")
        if skill.is_fork and self.is_fork:
            raise ToolFailure(f"{skill.name!r} runs in a session of its own, and this is one already", "fork_in_fork")
        body = await asyncio.to_thread(extract_skill_body, skill.path)
        if body is None:
            raise ToolFailure(f"The body of the skill {skill.name!r} cannot be read", "not_found")
        forks = skill.is_fork and callable(find_capability(self._coordinator, SPAWN))
        if skill.is_fork and not forks:
            logger.warning("tool-skills: %s is loaded here: the application cannot spawn sessions", skill.name)
        text = await prepared_body(
            self._coordinator, skill, body, values.get("arguments", ""), self._allow_shell, runs_shell=forks
        )
        await self._announce_loaded(skill, len(text))
        if forks:
            output = await carry_out(self._coordinator, skill, text, values)
            await self._emit(FORKED, {key: output[key] for key in ("skill_name", "session_id", "turn_count", "status")})
            return ToolResult(output=output)
        return ToolResult(
            output={
                "content": f"# {skill.name}\n\n{text}",
                "skill_name": skill.name,
                "skill_directory": str(skill.directory),
                "loaded_from": skill.source,
            }
        )

    async def _announce_loaded(self, skill: SkillMetadata, length: int, **more: Any) -> None:
        self._loaded[skill.name] = skill
        data = {
            "skill_name": skill.name,
            "source": skill.source,
            "content_length": length,
            "version": skill.version,
            "skill_directory": str(skill.directory),
            "hooks": _hooks(skill),
            "context": skill.context,
            "allowed_tools": _listing(skill.allowed_tools),
            "disable_model_invocation": skill.disable_model_invocation,
            "user_invocable": skill.user_invocable,
            "slash_command": skill.shortcut or skill.name if skill.user_invocable else None,
        }
        await self._emit(LOADED, {**data, **more})

    # --- the session's life

    async def announce(self) -> None:
        """Look for skills, and tell what was found and what is wrong."""
        await self._look()
        names = [name for name, _ in self.discovery.list_skills()]
        sources = self.discovery.sources
        await self._emit(DISCOVERED, {"skill_count": len(names), "skill_names": names, "sources": sources})

    async def begin(self) -> None:
        """Announce the skills, and as loaded those that do their work by hooks alone."""
        await self.announce()
        for _, skill in sorted(self.discovery.catalogue().skills.items()):
            if skill.auto_load and _hooks(skill):
                await self._announce_loaded(skill, 0, auto_loaded=True)

    async def start(self, event: str, data: dict[str, Any]) -> HookResult:
        """Say it again to those who were not there yet when the tool was mounted."""
        if not self._is_started:
            self._is_started = True
            for found in self.discovery.diagnostics:
                await self._emit(DIAGNOSTIC, found.to_dict())
            await self.begin()
        return NOTHING

    async def resume(self, event: str, data: dict[str, Any]) -> HookResult:
        """Announce again what the conversation has loaded, so that its hooks are active again."""
        await self.start(event, data)
        with Boundary(logger, "tool-skills: what was loaded before is not known: %s"):
            messages = await find_mounted(self._coordinator, "context").get_messages()
            calls = {call.id: call for message in messages for call in calls_in(message) if call.name == self.name}
            for message in messages:
                for result in results_in(message) or ():
                    called = calls.get(result.call_id)
                    name = called.arguments.get("skill_name") if called is not None else None
                    skill = self.discovery.find(name) if isinstance(name, str) and not result.is_error else None
                    if skill is not None and skill.name not in self._loaded and '"skill_name"' in str(result.output):
                        await self._announce_loaded(skill, 0, auto_loaded=True)
        return NOTHING

    async def end(self) -> None:
        """Announce that nothing is loaded any more."""
        loaded, self._loaded = self._loaded, {}
        for skill in loaded.values():
            await self._emit(UNLOADED, {"skill_name": skill.name, "source": skill.source, "hooks": _hooks(skill)})

    async def _look(self) -> None:
        await asyncio.to_thread(self.discovery.refresh)
        for found in self.discovery.diagnostics:
            if found not in self._told:
                self._told.add(found)
                logger.warning("tool-skills: %s: %s", found.path, found.message)
                await self._emit(DIAGNOSTIC, found.to_dict())

    async def _emit(self, event: str, data: dict[str, Any]) -> None:
        await emit_quietly(hook_registry(self._coordinator), event, data)


_ALLOW_SHELL: tuple[AllowShell, ...] = ("never", "ask", "trusted")


def _allow_shell(chosen: str) -> AllowShell:
    return next(value for value in _ALLOW_SHELL if value == chosen)


def _sources(read: LenientConfig, coordinator: Any) -> list[SkillSource]:
    """Return the configured sources: `skills`, else the older keys, else what the plan or an older host says."""
    given = read.raw("skills")
    older = [*read.strings("skills_dirs", list[str](), takes_one=True), *read.strings("skills_dir", [], takes_one=True)]
    if given is None:
        given = older or plan_of(coordinator).get("skills") or find_capability(coordinator, "skills.directories")
    if isinstance(given, Mapping) and "source" not in given:
        given = given.get("sources") or given.get("dirs")
    sources: list[SkillSource] = []
    for item in given if isinstance(given, list | tuple) else [] if given is None else [given]:
        found = SkillSource.of(str(item) if isinstance(item, Path) else item)
        if found is None:
            read.refuse("skills", item, "a source, or a list of sources", None)
        else:
            sources.append(found)
    return sources


def _is_forked(coordinator: Any) -> bool:
    session = plan_of(coordinator).get("session")
    metadata = session.get("metadata") if isinstance(session, Mapping) else None
    return isinstance(metadata, Mapping) and metadata.get("is_forked_skill_session") is True


def _hooks(skill: SkillMetadata) -> Any:
    """Return the hooks of a skill that may run something: one from a trusted source."""
    return _plain(skill.hooks) if skill.hooks and skill.trusted else None


def _listing(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _plain(value: Any) -> Any:
    """Return a value of YAML as JSON has it: dates as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
