"""Delegation: the reference implementation of the capabilities `session.spawn` and `session.resume`.

Agents are overlays for child sessions. A child starts from its parent's plan, as far as the bundle's `spawn` policy
hands it down; the agent's definition is laid over that; then the call's own policy removes what the agent did not ask
for by name.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.mount_plan import MountPlan
from amplifier_foundation.dicts.merge import deep_merge, merge_module_lists, module_identity
from amplifier_foundation.exceptions import BundleDependencyError, BundleLoadError
from amplifier_foundation.prepared.child import Child, run_child
from amplifier_foundation.serialization import sanitize_for_json, sanitize_message
from amplifier_foundation.session.store import load_metadata, load_transcript, write_metadata, write_transcript
from amplifier_foundation.sources.store import make_directory
from amplifier_foundation.tracing import generate_sub_session_id
from amplifier_system.model_choice import ModelChoice, ProviderPreference, choose_model

from .bundle.model import with_policy

if TYPE_CHECKING:
    from amplifier_core import AmplifierSession
    from amplifier_foundation.bundle import Bundle
    from amplifier_foundation.prepared import PreparedBundle

logger = logging.getLogger(__name__)

SELF = "self"

_FORMAT = 1
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,255}")
_POLICIES = {"tools": ("inherit_tools", "exclude_tools"), "hooks": ("inherit_hooks", "exclude_hooks")}


def register_spawn(session: AmplifierSession, prepared: PreparedBundle, *, store: Path | None = None) -> None:
    """Let a session, and the children it spawns, delegate to the agents of its plan.

    With a `store` directory the conversation of every child is kept there, one folder each, and `session.resume` goes
    on with it, even in a later process.
    """
    delegation = Delegation(session, prepared, Path(store) if store is not None else None)
    session.coordinator.register_capability("session.spawn", delegation.spawn)
    if store is not None:
        session.coordinator.register_capability("session.resume", delegation.resume)


@dataclass(frozen=True)
class Delegation:
    """What one session can delegate."""

    session: AmplifierSession
    prepared: PreparedBundle
    store: Path | None = None

    async def spawn(
        self,
        agent_name: str,
        instruction: str,
        parent_session: Any = None,
        agent_configs: dict[str, dict[str, Any]] | None = None,
        sub_session_id: str | None = None,
        tool_inheritance: dict[str, Any] | None = None,
        hook_inheritance: dict[str, Any] | None = None,
        orchestrator_config: dict[str, Any] | None = None,
        parent_messages: list[dict[str, Any]] | None = None,
        provider_preferences: Sequence[Any] | None = None,
        model_role: str | list[str] | None = None,
        self_delegation_depth: int = 0,
        session_metadata: dict[str, Any] | None = None,
        use_subprocess: bool = False,
        **_: Any,
    ) -> dict[str, Any]:
        """Run an instruction in a new session of an agent; `self` is the session's own kind.

        A child runs in this process, `use_subprocess` or not: its modules are imported here already.

        Raises:
            BundleDependencyError: there is no such agent.
        """
        parent = parent_session or self.session
        if sub_session_id is None:
            sub_session_id = generate_sub_session_id(agent_name, parent.session_id)
        else:
            parent_messages = None  # a caller that chooses the id passes the conversation on in the instruction
        order = Order.of(
            agent_name,
            _definition(agent_name, parent, agent_configs),
            parent.config.get("agents"),
            agent_configs,
            tool_inheritance=tool_inheritance,
            hook_inheritance=hook_inheritance,
            orchestrator_config=orchestrator_config,
            provider_preferences=provider_preferences,
            model_role=model_role,
            self_delegation_depth=self_delegation_depth,
            session_metadata=session_metadata,
        )
        if self.store is not None:
            await asyncio.to_thread(self._record, sub_session_id, parent.session_id, order)
        return await self._run(parent, order, instruction, sub_session_id, parent_messages, is_resumed=False)

    async def resume(
        self,
        sub_session_id: str,
        instruction: str,
        provider_preferences: Sequence[Any] | None = None,
        model_role: str | list[str] | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        """Run another instruction in a session that was spawned before, with its conversation.

        It goes on with the model that it was spawned with, unless the call prefers another; that one is kept then.

        Raises:
            FileNotFoundError: the store has no such session.
            BundleLoadError: it was stored by a newer release.
        """
        metadata, messages = await asyncio.to_thread(self._load, sub_session_id)
        stored = metadata["spawn"]
        name = str(stored["agent_name"])
        definitions = {name: stored["definition"]} if stored.get("definition") is not None else None
        is_rerouted = bool(provider_preferences or model_role)
        order = Order(
            agent_name=name,
            definition=_definition(name, self.session, definitions),
            is_known=definitions is None,
            agents=dict(self.session.config.get("agents") or {}),
            tool_inheritance=stored["tool_inheritance"],
            hook_inheritance=stored["hook_inheritance"],
            orchestrator_config=stored["orchestrator_config"],
            provider_preferences=provider_preferences if is_rerouted else stored["provider_preferences"],
            model_role=model_role if is_rerouted else stored.get("model_role"),
            self_delegation_depth=stored["self_delegation_depth"],
            session_metadata=stored["session_metadata"],
        )
        if is_rerouted:
            changed = {**metadata, "spawn": order.stored()}
            await asyncio.to_thread(write_metadata, self._directory(sub_session_id), changed)
        return await self._run(self.session, order, instruction, sub_session_id, messages, is_resumed=True)

    async def _run(
        self,
        parent: Any,
        order: Order,
        instruction: str,
        session_id: str,
        messages: list[dict[str, Any]] | None,
        *,
        is_resumed: bool,
    ) -> dict[str, Any]:
        bundle = child_bundle(self.prepared.bundle, parent.config, order)
        child = Child(
            compose=False,
            parent_session=parent,
            session_id=session_id,
            orchestrator_config=order.whole_orchestrator_config() or None,
            messages=messages,
            provider_preferences=(await model_choice_of(order, parent)).preferences,
            self_delegation_depth=order.self_delegation_depth,
            is_resumed=is_resumed,
            on_ready=self._hand_on,
            on_end=self._keep if self.store is not None else None,
        )
        return await run_child(self.prepared, bundle, instruction, child)

    async def _hand_on(self, child: AmplifierSession) -> None:
        register_spawn(child, self.prepared, store=self.store)

    async def _keep(self, child: AmplifierSession) -> None:
        """Write a child's conversation down, as far as it has come."""
        context = child.coordinator.get("context")
        messages = await context.get_messages() if hasattr(context, "get_messages") else []
        if not hasattr(context, "set_system_prompt_factory"):  # there the prompt is a message, and is set again
            messages = [message for message in messages if message.get("role") != "system"]
        entries = [sanitize_message(message) for message in messages]
        await asyncio.to_thread(write_transcript, self._directory(child.session_id), entries)

    def _record(self, session_id: str, parent_id: str, order: Order) -> None:
        directory = make_directory(self._directory(session_id))
        metadata = {
            "format_version": _FORMAT,
            "session_id": session_id,
            "parent_id": parent_id,
            "agent_name": order.agent_name,
            "bundle": self.prepared.bundle.name,
            "created": datetime.now(UTC).isoformat(),
            "spawn": order.stored(),
        }
        write_metadata(directory, metadata)

    def _load(self, session_id: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        directory = self._directory(session_id)
        metadata = load_metadata(directory)
        if "spawn" not in metadata:
            raise FileNotFoundError(
                f"session {session_id!r} in {directory} was not spawned, so it cannot be resumed this way"
            )
        if metadata.get("format_version") != _FORMAT:
            raise BundleLoadError(
                f"session {session_id!r} in {directory} has format {metadata.get('format_version')!r}, "
                f"this release reads {_FORMAT}",
                hint="use the release that wrote it",
            )
        try:
            return metadata, load_transcript(directory)
        except FileNotFoundError:
            return metadata, []

    def _directory(self, session_id: str) -> Path:
        if self.store is None or not _SESSION_ID.fullmatch(session_id) or ".." in session_id:
            raise FileNotFoundError(f"there is no stored session {session_id!r}")
        return self.store / session_id


@dataclass(frozen=True, kw_only=True)
class Order:
    """One delegation: to whom, and by which rules. `agents` are those the session knows.

    `is_known` says that the plan defines the agent; otherwise its definition came with the call.
    """

    agent_name: str
    definition: Mapping[str, Any]
    is_known: bool
    agents: dict[str, Any]
    tool_inheritance: Mapping[str, Any]
    hook_inheritance: Mapping[str, Any]
    orchestrator_config: Mapping[str, Any]
    provider_preferences: Sequence[Any] | None
    model_role: str | Sequence[str] | None = None
    self_delegation_depth: int
    session_metadata: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        agent_name: str,
        definition: Mapping[str, Any],
        known: Mapping[str, Any] | None,
        agent_configs: Mapping[str, Any] | None = None,
        *,
        tool_inheritance: Mapping[str, Any] | None = None,
        hook_inheritance: Mapping[str, Any] | None = None,
        orchestrator_config: Mapping[str, Any] | None = None,
        provider_preferences: Sequence[Any] | None = None,
        model_role: str | Sequence[str] | None = None,
        self_delegation_depth: int = 0,
        session_metadata: Mapping[str, Any] | None = None,
    ) -> Order:
        """Return the order that a call of `session.spawn` is; `known` are the agents of the parent's plan."""
        return cls(
            agent_name=agent_name,
            definition=definition,
            is_known=agent_name in (known or {}),
            agents={**(known or {}), **(agent_configs or {})},
            tool_inheritance=tool_inheritance or {},
            hook_inheritance=hook_inheritance or {},
            orchestrator_config=orchestrator_config or {},
            provider_preferences=provider_preferences,
            model_role=model_role,
            self_delegation_depth=self_delegation_depth,
            session_metadata=session_metadata or {},
        )

    def whole_orchestrator_config(self) -> dict[str, Any]:
        """Return the call's configuration of the orchestrator with the agent's own over it."""
        own = MountPlan(self.definition).at("session.orchestrator")
        return deep_merge(dict(self.orchestrator_config), dict(own.config) if own else {}, lists="replace")

    def stored(self) -> dict[str, Any]:
        """Return what is written down of it, as plain data."""
        preferences = [ProviderPreference.of(item).to_dict() for item in self.provider_preferences or ()]
        return {
            "agent_name": self.agent_name,
            "definition": None
            if self.is_known or self.agent_name == SELF
            else sanitize_for_json(dict(self.definition)),
            "tool_inheritance": sanitize_for_json(self.tool_inheritance),
            "hook_inheritance": sanitize_for_json(self.hook_inheritance),
            "orchestrator_config": sanitize_for_json(self.orchestrator_config),
            "provider_preferences": preferences or None,
            "model_role": sanitize_for_json(self.model_role),
            "self_delegation_depth": self.self_delegation_depth,
            "session_metadata": sanitize_for_json(self.session_metadata),
        }


def child_bundle(bundle: Bundle, parent_plan: Mapping[str, Any], order: Order) -> Bundle:
    """Return the bundle of a child session: the parent's, with the modules and agents the rules leave it."""
    definition = order.definition
    plan = _inherited(parent_plan)
    for section in ("tools", "hooks"):
        excluded = (definition.get("spawn") or {}).get(f"exclude_{section}")
        plan[section] = _filtered(plan[section], {"exclude": excluded}, ("", "exclude"), set())
    overlay = _lists(definition)
    for section, entries in overlay.items():
        merged = merge_module_lists(plan[section], entries, lists="replace")
        plan[section] = [entry for entry in merged if entry.get("module")]
    own = definition.get("session") or {}
    session = with_policy(deep_merge(plan["session"], own, lists="replace"), plan["session"], own)
    if order.session_metadata:
        session["metadata"] = {**(session.get("metadata") or {}), **order.session_metadata}
    inheritance = {"tools": order.tool_inheritance, "hooks": order.hook_inheritance}
    for section, rules in inheritance.items():
        explicit = {key for entry in overlay[section] for key in _names_of(entry)}
        explicit |= _required(plan["hooks"]) if section == "hooks" else set()
        plan[section] = _filtered(plan[section], rules, _POLICIES[section], explicit)
    return replace(
        agent_bundle(bundle, order.agent_name, instruction_of(definition)),
        session=session,
        providers=plan["providers"],
        tools=plan["tools"],
        hooks=plan["hooks"],
        agents=_allowed_agents(order),
        spawn=deepcopy(dict(parent_plan.get("spawn") or {})),
    )


def agent_bundle(bundle: Bundle, agent_name: str, instruction: str | None) -> Bundle:
    """Return a bundle with the instruction of an agent in place of its own, if the agent has one."""
    content = type(bundle)(name=agent_name, from_meta=True, instruction=instruction or None, _agent_instruction=True)
    return bundle.compose(content)


def _definition(
    agent_name: str, parent: Any, agent_configs: Mapping[str, Mapping[str, Any]] | None
) -> Mapping[str, Any]:
    if agent_name == SELF:
        return {}
    known = {**(parent.config.get("agents") or {}), **(agent_configs or {})}
    found = known.get(agent_name)
    if not isinstance(found, Mapping):
        names = ", ".join(sorted(str(name) for name in known)) or "none"
        raise BundleDependencyError(
            f"Agent '{agent_name}' not found (agents here: {names})", hint="add it to the bundle's agents"
        )
    return found


def _inherited(parent_plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of what the bundle's spawn policy hands down of a plan."""
    policy = parent_plan.get("spawn") or {}
    if excluded := policy.get("exclude_tools"):
        _warn_of_global_exclusion(", ".join(map(str, excluded)))
    plan: dict[str, Any] = {**_lists(parent_plan)}
    plan["session"] = deepcopy(MountPlan(parent_plan).by_entry()["session"])
    if isinstance(policy.get("tools"), list):
        plan["tools"] = _normalised(policy["tools"])
    else:
        plan["tools"] = _filtered(plan["tools"], {"exclude": policy.get("exclude_tools")}, ("", "exclude"), set())
    required = _required(plan["hooks"])
    plan["hooks"] = _filtered(plan["hooks"], {"exclude": policy.get("exclude_hooks")}, ("", "exclude"), required)
    return plan


@lru_cache
def _warn_of_global_exclusion(names: str) -> None:
    """Say once that a bundle takes tools from every agent, which its author may have meant for one."""
    logger.warning("spawn.exclude_tools of the bundle takes %s from every agent; for one agent, write it there", names)


def _lists(part: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the lists of modules of a plan or of an agent's definition."""
    return {section: _normalised(entries) for section, entries in MountPlan(part).lists().items()}


def _normalised(entries: Any) -> list[dict[str, Any]]:
    """Return a list of modules, copied, with names on their own as entries, and instances told apart by their id."""
    listed = [{"module": entry} if isinstance(entry, str) else entry for entry in entries or ()]
    copied = [deepcopy(dict(entry)) for entry in listed if isinstance(entry, Mapping) and module_identity(entry)]
    return [{"id": entry["instance_id"], **entry} if entry.get("instance_id") else entry for entry in copied]


def _filtered(
    entries: list[dict[str, Any]], rules: Mapping[str, Any], keys: tuple[str, str], explicit: set[str | None]
) -> list[dict[str, Any]]:
    """Return the entries that an allow-list or a list of exclusions leaves; what is explicit always stays."""
    allowed, excluded = rules.get(keys[0]), rules.get(keys[1]) or ()
    return [
        entry
        for entry in entries
        if not explicit.isdisjoint(_names_of(entry))
        or (entry.get("module") in allowed if allowed is not None else entry.get("module") not in excluded)
    ]


def _required(hooks: list[dict[str, Any]]) -> set[str | None]:
    """Return the names of the hooks without which no session starts, a child neither."""
    return {key for entry in hooks if entry.get("required") for key in _names_of(entry)}


def _names_of(entry: Mapping[str, Any]) -> set[str | None]:
    """Return the names by which an agent may ask for a module: that of the instance and that of the module."""
    return {module_identity(entry), entry.get("module")} - {None}


def _allowed_agents(order: Order) -> dict[str, Any]:
    access = order.definition.get("agents")
    if access == "none":
        return {}
    if isinstance(access, list):
        return {name: deepcopy(order.agents[name]) for name in access if name in order.agents}
    return deepcopy(order.agents)


def instruction_of(definition: Mapping[str, Any]) -> str | None:
    """Return what an agent's definition tells it."""
    system = definition.get("system")
    inline = system.get("instruction") if isinstance(system, Mapping) else None
    return definition.get("instruction") or inline or None


async def model_choice_of(order: Order, parent: Any) -> ModelChoice:
    """Return what a child works with: as the call says, else as the agent does."""
    return await choose_model(
        parent.coordinator,
        provider_preferences=order.provider_preferences,
        model_role=order.model_role,
        agent=order.definition,
    )
