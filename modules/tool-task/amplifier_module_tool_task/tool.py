"""The tool `task`."""

import copy
import inspect
import logging
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from amplifier_core import ToolResult
from amplifier_core.boundary import Boundary, settle
from amplifier_core.utils.tool_messages import field_of
from amplifier_kit.messages.conversation import text_of
from amplifier_kit.mounting import find_capability, find_mounted, session_id_of
from amplifier_kit.tools import effects as tool_effects
from amplifier_kit.tools.input import ToolFailure, read_input
from amplifier_kit.tools.runs import AnsweringTool

from .delegation import Delegations, Resume, Spawn
from .settings import Announcer, TaskSettings

logger = logging.getLogger(__name__)

# What a child session is told about its parent's conversation: the words, without tools and thinking.


DEFAULT_TURNS = 5

_SPEAKERS = ("user", "assistant")
_INTRODUCTION = "The conversation that led to your task, for your information; do not answer it."
_CUT = "... [truncated]"


@dataclass(frozen=True, slots=True)
class Utterance:
    speaker: str
    text: str


async def with_parent_context(
    coordinator: Any, instruction: str, *, scope: str, turns: int = DEFAULT_TURNS, max_chars: int
) -> str:
    """Return the instruction with the conversation before it: none, the recent turns or all of it."""
    if scope == "none" or (scope == "recent" and turns <= 0):
        return instruction
    spoken = await _conversation(coordinator)
    if scope == "recent":
        spoken = last_turns(spoken, turns)
    if not spoken:
        return instruction
    paragraphs = [f"{said.speaker.upper()}: {_cut(said.text, max_chars)}\n" for said in spoken]
    return "\n".join(
        [
            "[PARENT CONVERSATION CONTEXT]",
            f"{_INTRODUCTION}\n",
            *paragraphs,
            "[END PARENT CONTEXT]\n",
            "[YOUR TASK]",
            instruction,
        ]
    )


def last_turns(spoken: list[Utterance], turns: int) -> list[Utterance]:
    """Return the last turns; each starts with what the user says."""
    starts = [index for index, said in enumerate(spoken) if said.speaker == "user"]
    return spoken[starts[-turns] :] if len(starts) > turns else spoken


async def _conversation(coordinator: Any) -> list[Utterance]:
    with Boundary(logger, "the conversation cannot be read; the task is delegated without it: %s"):
        return list(_spoken(await find_mounted(coordinator, "context").get_messages()))
    return []


def _spoken(messages: Any) -> Iterator[Utterance]:
    for message in messages:
        role, text = field_of(message, "role"), text_of(field_of(message, "content"), "\n")
        if role in _SPEAKERS and text.strip():
            yield Utterance(role, text)


def _cut(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[:max_chars] + _CUT


_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,255}")
_UNAVAILABLE = "Hand a task to another agent. Unavailable at the moment: the mount plan has no agents. Do not use it."
_PURPOSE = """\
Hand a task to another agent, which works on it in a session of its own and returns its answer.

- Use it for work that stands alone, or that an agent below is made for; not for what you can do in a step or two.
- The agent knows nothing of this conversation unless you set inherit_context: put everything it needs into instruction.
- Several calls in one response run at the same time.
- The answer comes with a session_id; give that instead of agent to go on with the same session.

Agents:
"""


class TaskTool(AnsweringTool):
    """Delegates through the capabilities `session.spawn` and `session.resume`, which the application registers."""

    name = "task"
    display_argument = "agent"
    effects = frozenset({tool_effects.SPAWN})
    input_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "agent": {"type": "string", "description": "The agent to hand the task to, by its name."},
            "instruction": {"type": "string", "description": "The task, with everything that is needed for it."},
            "session_id": {
                "type": "string",
                "description": "The session of an earlier delegation, to go on with it instead of starting a new one.",
            },
            "inherit_context": {
                "type": "string",
                "enum": ["none", "recent", "all"],
                "description": "How much of this conversation the agent is told: none (default), recent turns, or all.",
            },
            "inherit_context_turns": {
                "type": "integer",
                "description": f"How many turns are recent. Default: {DEFAULT_TURNS}.",
            },
            "provider_preferences": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "provider": {"type": "string", "description": "The provider, for example anthropic."},
                        "model": {"type": "string", "description": "The model, or a pattern for its name."},
                    },
                    "required": ["provider", "model"],
                },
                "description": "Providers and models for the agent; the first that is available is used.",
            },
        },
        "required": ["instruction"],
    }

    def __init__(self, coordinator: Any = None, config: Mapping[str, Any] | None = None) -> None:
        self._coordinator = coordinator
        self._settings = TaskSettings.read(config)
        self._delegations = Delegations(Announcer(coordinator), self._settings)

    @property
    def description(self) -> str:
        """What the tool is for, and the agents of the mount plan."""
        agents = agents_of(self._coordinator)
        return _PURPOSE + listing(agents) if agents else _UNAVAILABLE

    async def answer(self, given: Any) -> ToolResult:
        """Delegate a task and return the other session's answer; being cancelled cancels that session as well."""
        if isinstance(given, dict) and _is_blank(given.get("instruction")):
            raise ToolFailure("Instruction cannot be empty", "invalid_input")
        values = read_input(self.name, self.input_schema, given)
        if _is_blank(values.get("session_id")):
            return await self._spawn(values)
        return await self._resume(values["session_id"], values["instruction"])

    async def _spawn(self, values: dict[str, Any]) -> ToolResult:
        agents = agents_of(self._coordinator)
        agent = values.get("agent", "")
        if _is_blank(agent):
            message = "Agent name required; or give session_id to go on with the session of an earlier delegation"
            raise ToolFailure(message, "invalid_input")
        if agent not in agents:
            raise ToolFailure(f"Agent '{agent}' not found", "agent_not_found", available=list(agents))
        preferences = read_preferences(values.get("provider_preferences"))
        self._check_depth()
        spawn = required_capability(self._coordinator, SPAWN, "Spawning a child session")
        parent_session_id = session_id_of(self._coordinator)
        sub_session_id = new_sub_session_id(parent_session_id, agent)
        keywords = {
            "agent_name": agent,
            "instruction": await self._instruction(values),
            "parent_session": getattr(self._coordinator, "session", None),
            "agent_configs": agents,
            "sub_session_id": sub_session_id,
            "tool_inheritance": copy.deepcopy(self._settings.tool_inheritance),
            "hook_inheritance": copy.deepcopy(self._settings.hook_inheritance),
            "orchestrator_config": orchestrator_config(self._coordinator),
            "provider_preferences": preferences,
        }
        logger.debug("task: agent %s in session %s", agent, sub_session_id)
        return await self._delegations.run(
            Spawn(
                agent=agent,
                sub_session_id=sub_session_id,
                parent_session_id=parent_session_id,
                work=lambda: call(spawn, fitted(spawn, keywords)),
            )
        )

    async def _resume(self, session_id: str, instruction: str) -> ToolResult:
        if not _SESSION_ID.fullmatch(session_id) or ".." in session_id:
            raise ToolFailure("task: 'session_id' is not the id of a session", "invalid_input")
        resume = required_capability(self._coordinator, RESUME, "Resuming a session")
        keywords = {"sub_session_id": session_id, "instruction": instruction}
        logger.debug("task: session %s again", session_id)
        return await self._delegations.run(
            Resume(
                sub_session_id=session_id,
                parent_session_id=session_id_of(self._coordinator),
                work=lambda: call(resume, keywords),
            )
        )

    def _check_depth(self) -> None:
        depth = depth_of(self._coordinator)
        if not self._settings.allows_child_of(depth):
            limit = self._settings.max_recursion_depth
            message = f"Maximum recursion depth exceeded: this session has depth {depth}, the limit is {limit}"
            raise ToolFailure(f"{message}; do the task yourself", "recursion_limit")

    async def _instruction(self, values: dict[str, Any]) -> str:
        return await with_parent_context(
            self._coordinator,
            values["instruction"],
            scope=values.get("inherit_context", "none"),
            turns=values.get("inherit_context_turns", DEFAULT_TURNS),
            max_chars=self._settings.max_context_chars,
        )


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


# The agents of the mount plan, and the names and the depth of the sessions they work in.


_SETTINGS = frozenset({"dirs", "include", "inline"})  # keys beside the agents, which say where more of them come from
_DESCRIPTION_CHARS = 500
_HOP = re.compile(r"-[0-9a-f]{16}_")
_NAMELESS_PARENT = "session"


def plan_of(coordinator: Any) -> Mapping[str, Any]:
    """Return the session's mount plan, empty when there is none."""
    plan = getattr(coordinator, "config", None)
    return plan if isinstance(plan, Mapping) else {}


def agents_of(coordinator: Any) -> dict[str, dict[str, Any]]:
    """Return the agents a task can be handed to, sorted by name."""
    agents = plan_of(coordinator).get("agents")
    if not isinstance(agents, Mapping):
        return {}
    named = {name: agent for name, agent in agents.items() if isinstance(name, str) and isinstance(agent, dict)}
    return {name: named[name] for name in sorted(named) if name not in _SETTINGS}


def listing(agents: Mapping[str, Mapping[str, Any]]) -> str:
    """Return one line for each agent."""
    return "\n".join(f"  - {name}: {_description(agent)}" for name, agent in agents.items())


def _description(agent: Mapping[str, Any]) -> str:
    given = agent.get("description")
    text = " ".join(given.split()) if isinstance(given, str) else ""
    return text[:_DESCRIPTION_CHARS] or "No description"


def new_sub_session_id(parent_session_id: str | None, agent: str) -> str:
    """Return an id for a child session, which tells its parent and its agent."""
    suffix = re.sub(r"[^a-z0-9]+", "-", agent.lower()).strip("-") or "agent"
    return f"{parent_session_id or _NAMELESS_PARENT}-{secrets.token_hex(8)}_{suffix}"


def depth_of(coordinator: Any) -> int:
    """Return how many delegations lie between the user and this session."""
    depth = find_capability(coordinator, "task.depth")
    if isinstance(depth, int) and not isinstance(depth, bool):
        return depth
    return len(_HOP.findall(session_id_of(coordinator) or ""))


# What the application does for the tool: start a child session, or continue one.


SPAWN = "session.spawn"
RESUME = "session.resume"

# What an application that was written before these existed does not take.
_OPTIONAL = frozenset({"tool_inheritance", "hook_inheritance", "orchestrator_config", "provider_preferences"})


def required_capability(coordinator: Any, name: str, purpose: str) -> Callable[..., Any]:
    """Return what the application registered under `name`; raises `ToolFailure`."""
    capability = find_capability(coordinator, name)
    if not callable(capability):
        message = f"{purpose} is unavailable: the application must register the capability {name!r}"
        raise ToolFailure(message, "capability_missing")
    found: Callable[..., Any] = capability
    return found


async def call(capability: Callable[..., Any], keywords: dict[str, Any]) -> Any:
    """Call a capability, which may or may not be a coroutine function."""
    return await settle(capability(**keywords))


def fitted(spawn: Callable[..., Any], keywords: dict[str, Any]) -> dict[str, Any]:
    """Return those of the keywords that `spawn` takes; the instruction may be called `task` there."""
    try:
        parameters = inspect.signature(spawn).parameters
    except (TypeError, ValueError):
        return keywords
    named = {name for name, one in parameters.items() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    taken = {key: value for key, value in keywords.items() if takes_any or key in named or key not in _OPTIONAL}
    if "instruction" not in named and "task" in named:
        task = parameters["task"]
        if not takes_any or task.default is task.empty:
            taken["task"] = taken.pop("instruction")
    return taken


def orchestrator_config(coordinator: Any) -> dict[str, Any] | None:
    """Return the configuration of the session's orchestrator, None when its plan has none."""
    plan = plan_of(coordinator)
    for section in (plan, plan.get("session")):
        orchestrator = section.get("orchestrator") if isinstance(section, Mapping) else None
        config = orchestrator.get("config") if isinstance(orchestrator, Mapping) else None
        if isinstance(config, Mapping):
            return dict(config)
    return None


# Which provider and model a child session should use, in the order of preference.


@dataclass(frozen=True)
class ProviderPreference:
    """One choice: a provider, a model (or a pattern for it), and configuration for that provider."""

    provider: str
    model: str
    config: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the preference as a mount plan has it."""
        chosen: dict[str, Any] = {"provider": self.provider, "model": self.model}
        return {**chosen, "config": dict(self.config)} if self.config else chosen


def read_preferences(given: list[Any] | None) -> list[ProviderPreference] | None:
    """Return the preferences of a call, None when it has none; raises `ToolFailure`."""
    return [_read(index, item) for index, item in enumerate(given)] if given else None


def _read(index: int, item: Any) -> ProviderPreference:
    if not isinstance(item, dict):
        raise _invalid(index, "must be an object with 'provider' and 'model'")
    for key in ("provider", "model"):
        if not isinstance(item.get(key), str) or not item[key].strip():
            raise _invalid(index, f"needs a non-empty string as its {key!r}")
    config = item.get("config")
    if config is not None and not isinstance(config, dict):
        raise _invalid(index, f"has a 'config' that is not an object but of type {type(config).__name__}")
    return ProviderPreference(item["provider"], item["model"], dict(config or {}))


def _invalid(index: int, problem: str) -> ToolFailure:
    return ToolFailure(f"task: 'provider_preferences' [{index}] {problem}", "invalid_input")
