"""The tool `delegate`."""

import asyncio
import copy
import logging
from collections.abc import Mapping
from typing import Any

from amplifier_core import ToolResult
from amplifier_core.boundary import Boundary, settle
from amplifier_kit.delegation.agents import (
    MODEL_ROLE_RESOLVER,
    NO_AGENTS,
    RESUME,
    SPAWN,
    ModelChoice,
    agents_of,
    call,
    choose_model,
    dispatch_of,
    fitted,
    generate_sub_session_id,
    hops_of,
    is_blank,
    is_session_id,
    listing,
    orchestrator_config,
    read_preferences,
    required_capability,
)
from amplifier_kit.delegation.conversation import DEFAULT_TURNS, DEPTHS, SCOPES, with_parent_context
from amplifier_kit.delegation.engine import Delegations, TreeLimits
from amplifier_kit.mounting import find_capability, session_id_of
from amplifier_kit.tools import effects as tool_effects
from amplifier_kit.tools.input import ToolFailure, read_input
from amplifier_kit.tools.runs import AnsweringTool, announce

from .delegation import CONTRACT_REQUEST, UNRESOLVED, AgentDelegation, Resume
from .settings import CallBudget, DelegateSettings

logger = logging.getLogger(__name__)

SELF = "self"

_SELF_DEPTH = "self_delegation_depth"
_PARTIAL = "session.partial"

_PURPOSE = """\
Hand work to an agent, which does it in a session of its own and returns its answer.

- Use it for work that stands alone and would fill this conversation with details you do not need, or that an agent \
below is made for; not for what you can do in a step or two.
- Several calls in one response run at the same time: split independent work that way.
- Put everything that the agent needs into instruction: the goal, the files, what the answer has to contain.
"""
_FEATURE_TEXTS = {
    "context_inheritance": "- By default the agent is told the recent turns of this conversation; context_depth and "
    "context_scope say how much.\n",
    "session_resume": "- The answer comes with a session_id; give that instead of agent to go on with the same "
    "session.\n",
    "self_delegation": '- agent "self" is a copy of you, with your tools and without this conversation.\n',
    "provider_selection": "- model_role or provider_preferences choose another model than the agent's own.\n",
}


class DelegateTool(AnsweringTool):
    """Delegates through the capabilities `session.spawn` and `session.resume`, which the application registers."""

    name = "delegate"
    display_argument = "agent"
    effects = frozenset({tool_effects.SPAWN})

    def __init__(self, coordinator: Any = None, config: Mapping[str, Any] | None = None) -> None:
        self._coordinator = coordinator
        self._settings = settings = DelegateSettings.read(config)
        self._limits = TreeLimits.of(
            coordinator,
            max_concurrent=settings.max_concurrent,
            max_total=settings.max_total,
            max_depth=settings.max_depth,
        )
        self._delegations = Delegations(coordinator, self._limits)
        self._spawned = 0

    @property
    def description(self) -> str:
        """What the tool is for, what it can do as it is configured, and the agents of the mount plan."""
        agents = agents_of(self._coordinator)
        if not agents and not self._settings.delegates_to_self:
            return f"Hand work to an agent. {NO_AGENTS}"
        features = "".join(_FEATURE_TEXTS[name] for name in self._settings.feature_names)
        listed = f"\nAgents:\n{listing(agents)}" if agents else ""
        return f"{_PURPOSE}{features}{listed}"

    @property
    def input_schema(self) -> dict[str, Any]:
        """The schema of the input, as far as features and the resolver of roles allow it."""
        who = "The agent to hand the work to, by its name"
        who += '; "self" is a copy of you.' if self._settings.delegates_to_self else '. "self" is not accepted here.'
        properties: dict[str, Any] = {
            "instruction": {"type": "string", "description": "The work, with everything that is needed for it."},
            "agent": {"type": "string", "description": who},
        }
        if self._settings.resumes:
            properties["session_id"] = {
                "type": "string",
                "description": "The session of an earlier delegation, to go on with it instead of starting a new one.",
            }
        properties |= self._context_properties() if self._settings.inherits_context else {}
        properties |= self._model_properties()
        properties["max_llm_calls"] = {
            "type": "integer",
            "description": "How many times the agent may call its model; without it there is no limit of this call's.",
        }
        return {"type": "object", "properties": properties, "required": ["instruction"]}

    def _context_properties(self) -> dict[str, Any]:
        return {
            "context_depth": {
                "type": "string",
                "enum": list(DEPTHS),
                "description": "How much of this conversation the agent is told: none, recent turns (default), or all.",
            },
            "context_turns": {
                "type": "integer",
                "description": f"How many turns are recent. Default: {DEFAULT_TURNS}, at most "
                f"{self._settings.max_turns}.",
            },
            "context_scope": {
                "type": "string",
                "enum": list(SCOPES),
                "description": "What counts as conversation: what was said (default), also what agents answered, or "
                "also the results of all tools.",
            },
        }

    def _model_properties(self) -> dict[str, Any]:
        if not self._settings.selects_provider:
            return {}
        preference = {
            "type": "object",
            "properties": {
                "provider": {"type": "string", "description": "The provider, for example anthropic."},
                "model": {"type": "string", "description": "The model, or a pattern for its name."},
            },
            "required": ["provider", "model"],
        }
        properties: dict[str, Any] = {
            "provider_preferences": {
                "type": "array",
                "items": preference,
                "description": "Providers and models for the agent; the first that is available is used.",
            }
        }
        resolver = find_capability(self._coordinator, MODEL_ROLE_RESOLVER)
        if resolver is not None:
            role: dict[str, Any] = {"type": "string", "description": "The kind of model that the work needs."}
            if roles := getattr(resolver, "known_roles", None):
                role["enum"] = [str(known) for known in roles]
            properties["model_role"] = role
        return properties

    async def answer(self, given: Any) -> ToolResult:
        """Delegate work and return the other session's answer; being cancelled cancels that session as well."""
        schema = self.input_schema
        values = read_input(self.name, {**schema, "required": []}, _known(given))
        choice = await self._choose(values, given.get("model_role"))
        if is_blank(values.get("instruction")):
            raise ToolFailure("Instruction cannot be empty", "invalid_input")
        if not is_blank(given.get("session_id")):
            if not self._settings.resumes:
                raise ToolFailure("Session resume is disabled here; name an agent instead", "resume_disabled")
            return await self._resume(values, choice)
        return await self._spawn(values, choice)

    async def _choose(self, values: Mapping[str, Any], wanted: Any) -> ModelChoice:
        """Return the model that the call asks for; a role that nothing serves is told, and fails a strict tool."""
        preferences = read_preferences(self.name, values.get("provider_preferences"))
        role = wanted if isinstance(wanted, str) and wanted and not preferences else None
        chosen = ModelChoice(unserved=(role,) if role else ())
        with Boundary(logger, "the model role %r cannot be resolved: %s", role):
            chosen = await choose_model(self._coordinator, provider_preferences=preferences, model_role=role)
        if chosen.unserved:
            logger.warning("delegate: no model serves the role %r; the agent's own or its parent's is used", role)
            data = {"model_role": role, "agent": values.get("agent"), "parent_session_id": self._session_id}
            await announce(self._coordinator, UNRESOLVED, data)
            if self._settings.is_role_strict:
                raise ToolFailure(f"No model serves the role {role!r} here", "model_role_unresolved", model_role=role)
        return chosen

    async def _spawn(self, values: dict[str, Any], choice: ModelChoice) -> ToolResult:
        settings, agents = self._settings, agents_of(self._coordinator)
        agent = values.get("agent", "")
        depth = self._check_agent(agent, agents)
        spawn = required_capability(self._coordinator, SPAWN, "Spawning a child session")
        self._check_budget()
        definition = agents.get(agent, {})
        if choice.decided_by == "parent":
            with Boundary(logger, "the model of agent %r cannot be resolved: %s", agent):
                choice = await choose_model(self._coordinator, agent=definition)
        budget = settings.budget.of_agent(definition.get("budget")).of_call(values.get("max_llm_calls"))
        contract = settings.contract.of_agent(definition.get("return_contract"))
        sub_session_id = generate_sub_session_id(agent, self._session_id)
        dispatch = dispatch_of(asyncio.current_task(), self._coordinator)
        keywords = {
            "agent_name": agent,
            "instruction": await self._instruction(values) + (CONTRACT_REQUEST if contract.is_enabled else ""),
            "parent_session": getattr(self._coordinator, "session", None),
            "agent_configs": agents,
            "sub_session_id": sub_session_id,
            "tool_inheritance": copy.deepcopy(settings.tool_inheritance),
            "hook_inheritance": copy.deepcopy(settings.hook_inheritance),
            "orchestrator_config": self._orchestrator_config(budget),
            "parent_messages": None,
            "provider_preferences": list(choice.preferences) or None,
            "self_delegation_depth": depth,
            "session_metadata": {"agent_name": agent, **{key: value for key, value in dispatch.items() if value}},
        }
        self._limits.count(self._session_id, sub_session_id)
        self._spawned += 1
        facts = {"context_depth": self._depth(values), "context_scope": values.get("context_scope", "conversation")}
        return await self._delegations.run(
            AgentDelegation(
                agent=agent,
                sub_session_id=sub_session_id,
                parent_session_id=self._session_id,
                work=lambda: call(spawn, fitted(spawn, keywords)),
                timeout_s=settings.timeout_s,
                facts=facts,
                dispatch=dispatch,
                choice=choice,
                strips_contract=contract.strips_block if contract.is_enabled else None,
                calls_limit=budget.max_llm_calls,
                find_partial=self._partial,
                partial_max_chars=settings.partial_max_chars,
            )
        )

    async def _resume(self, values: dict[str, Any], choice: ModelChoice) -> ToolResult:
        session_id = values["session_id"]
        if not is_session_id(session_id):
            raise ToolFailure("delegate: 'session_id' is not the id of a session", "invalid_input")
        resume = required_capability(self._coordinator, RESUME, "Resuming a session")
        keywords: dict[str, Any] = {"sub_session_id": session_id, "instruction": values["instruction"]}
        if choice.preferences:
            routed = keywords | {"provider_preferences": list(choice.preferences), "model_role": choice.role}
            taken = fitted(resume, routed)
            if "provider_preferences" not in taken:
                dropped = [preference.to_dict() for preference in choice.preferences]
                message = "delegate: the application resumes session %s with the model that it has; dropped: %s"
                logger.warning(message, session_id, dropped)
            keywords = taken
        _, underscore, agent = session_id.rpartition("_")
        return await self._delegations.run(
            Resume(
                agent=agent if underscore else None,
                sub_session_id=session_id,
                parent_session_id=self._session_id,
                work=lambda: call(resume, keywords),
                timeout_s=self._settings.timeout_s,
                facts={},
                dispatch=dispatch_of(asyncio.current_task(), self._coordinator),
                choice=choice,
                find_partial=self._partial,
                partial_max_chars=self._settings.partial_max_chars,
            )
        )

    @property
    def _session_id(self) -> str | None:
        return session_id_of(self._coordinator)

    def _check_agent(self, agent: str, agents: Mapping[str, Any]) -> int:
        """Return how deep a session delegates to itself then: 0 for another agent; raises `ToolFailure`."""
        if is_blank(agent):
            message = "Agent name required; or give session_id to go on with the session of an earlier delegation"
            raise ToolFailure(message, "invalid_input", available=list(agents))
        depth = 0
        if agent == SELF:
            depth = self._self_depth() + 1
        elif ":" not in agent and agent not in agents:
            names = ", ".join(agents) or "none"
            raise ToolFailure(f"Agent '{agent}' not found. Available: {names}", "agent_not_found", available=[*agents])
        self._limits.check_depth(self._coordinator, hops_of(self._coordinator))
        return depth

    def _self_depth(self) -> int:
        settings = self._settings
        if not settings.delegates_to_self:
            raise ToolFailure('Delegation to "self" is disabled here; name an agent instead', "self_disabled")
        known = find_capability(self._coordinator, _SELF_DEPTH)
        depth = known if isinstance(known, int) and not isinstance(known, bool) else 0
        if depth >= settings.max_self_depth:
            raise ToolFailure(
                f"Self-delegation depth exceeded: this session has depth {depth}, the limit is "
                f"{settings.max_self_depth}; do the work yourself",
                "SELF_DELEGATION_DEPTH_EXCEEDED",
            )
        return depth

    def _check_budget(self) -> None:
        most = self._settings.max_spawns
        if most is not None and self._spawned >= most:
            raise ToolFailure(
                f"This session has started {self._spawned} agents, which is all it may; go on with one of them by its "
                "session_id, or do the work yourself",
                "SPAWN_BUDGET_EXCEEDED",
            )

    def _orchestrator_config(self, budget: CallBudget) -> dict[str, Any] | None:
        inherited = orchestrator_config(self._coordinator)
        return {**(inherited or {}), **budget.orchestrator_config} if inherited or budget.max_llm_calls else None

    def _depth(self, values: Mapping[str, Any]) -> str:
        return str(values.get("context_depth", "recent")) if self._settings.inherits_context else "none"

    async def _instruction(self, values: dict[str, Any]) -> str:
        return await with_parent_context(
            self._coordinator,
            values["instruction"],
            depth=self._depth(values),
            turns=min(values.get("context_turns", DEFAULT_TURNS), self._settings.max_turns),
            scope=values.get("context_scope", "conversation"),
        )

    async def _partial(self, sub_session_id: str) -> Mapping[str, Any] | None:
        """Return what a child said before it was stopped, as far as the application knows."""
        find = find_capability(self._coordinator, _PARTIAL)
        if not callable(find):
            return None
        with Boundary(logger, "what session %s said is not known: %s", sub_session_id):
            found = await settle(find(sub_session_id))
            return found if isinstance(found, Mapping) else None
        return None


def _known(given: Any) -> Any:
    """Return an input without empty texts, which models give for what they leave out."""
    if not isinstance(given, dict):
        return given
    return {key: value for key, value in given.items() if value != ""}
