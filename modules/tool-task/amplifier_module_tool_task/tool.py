"""The tool `task`."""

import copy
import logging
import re
import secrets
from collections.abc import Mapping
from typing import Any, ClassVar

from amplifier_core import ToolResult
from amplifier_kit.delegation.agents import (
    NO_AGENTS,
    RESUME,
    SPAWN,
    agents_of,
    call,
    fitted,
    hops_of,
    is_blank,
    is_session_id,
    listing,
    orchestrator_config,
    read_preferences,
    required_capability,
)
from amplifier_kit.delegation.conversation import DEFAULT_TURNS, with_parent_context
from amplifier_kit.delegation.engine import Delegations, TreeLimits
from amplifier_kit.mounting import find_capability, session_id_of
from amplifier_kit.tools import effects as tool_effects
from amplifier_kit.tools.input import ToolFailure, read_input
from amplifier_kit.tools.runs import AnsweringTool

from .delegation import Resume, Spawn
from .settings import TaskSettings

logger = logging.getLogger(__name__)

_UNAVAILABLE = f"Hand a task to another agent. {NO_AGENTS}"
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
        limits = TreeLimits.of(coordinator, max_concurrent=self._settings.max_concurrent)
        self._delegations = Delegations(coordinator, limits)

    @property
    def description(self) -> str:
        """What the tool is for, and the agents of the mount plan."""
        agents = agents_of(self._coordinator)
        return _PURPOSE + listing(agents) if agents else _UNAVAILABLE

    async def answer(self, given: Any) -> ToolResult:
        """Delegate a task and return the other session's answer; being cancelled cancels that session as well."""
        if isinstance(given, dict) and is_blank(given.get("instruction")):
            raise ToolFailure("Instruction cannot be empty", "invalid_input")
        values = read_input(self.name, self.input_schema, given)
        if is_blank(values.get("session_id")):
            return await self._spawn(values)
        return await self._resume(values["session_id"], values["instruction"])

    async def _spawn(self, values: dict[str, Any]) -> ToolResult:
        agents = agents_of(self._coordinator)
        agent = values.get("agent", "")
        if is_blank(agent):
            message = "Agent name required; or give session_id to go on with the session of an earlier delegation"
            raise ToolFailure(message, "invalid_input")
        if agent not in agents:
            raise ToolFailure(f"Agent '{agent}' not found", "agent_not_found", available=list(agents))
        preferences = read_preferences(self.name, values.get("provider_preferences"))
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
                timeout_s=self._settings.timeout_s,
            )
        )

    async def _resume(self, session_id: str, instruction: str) -> ToolResult:
        if not is_session_id(session_id):
            raise ToolFailure("task: 'session_id' is not the id of a session", "invalid_input")
        resume = required_capability(self._coordinator, RESUME, "Resuming a session")
        keywords = {"sub_session_id": session_id, "instruction": instruction}
        logger.debug("task: session %s again", session_id)
        return await self._delegations.run(
            Resume(
                sub_session_id=session_id,
                parent_session_id=session_id_of(self._coordinator),
                work=lambda: call(resume, keywords),
                timeout_s=self._settings.timeout_s,
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
            depth=values.get("inherit_context", "none"),
            turns=values.get("inherit_context_turns", DEFAULT_TURNS),
            max_chars=self._settings.max_context_chars,
        )


# The ids and the depth of the sessions that agents work in.


_NAMELESS_PARENT = "session"


def new_sub_session_id(parent_session_id: str | None, agent: str) -> str:
    """Return an id for a child session, which tells its parent and its agent."""
    suffix = re.sub(r"[^a-z0-9]+", "-", agent.lower()).strip("-") or "agent"
    return f"{parent_session_id or _NAMELESS_PARENT}-{secrets.token_hex(8)}_{suffix}"


def depth_of(coordinator: Any) -> int:
    """Return how many delegations lie between the user and this session."""
    depth = find_capability(coordinator, "task.depth")
    if isinstance(depth, int) and not isinstance(depth, bool):
        return depth
    return hops_of(coordinator)
