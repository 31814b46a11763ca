"""Agents, context and skills that are added to a running session for a while, such as for a mode."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from typing import Any

from amplifier_core.boundary import emit_quietly
from amplifier_foundation.bundle import Bundle
from amplifier_foundation.bundle.agents import read_agent_file
from amplifier_foundation.exceptions import BundleError

RUNTIME_CONTEXT_OVERLAY_CAPABILITY = "runtime_context_overlay"
RUNTIME_SKILL_OVERLAY_CAPABILITY = "runtime_skill_overlay"

_AGENTS = "agents"
_PUBLISHED = {"context": RUNTIME_CONTEXT_OVERLAY_CAPABILITY, "skills": RUNTIME_SKILL_OVERLAY_CAPABILITY}
_RESERVED = ("tools", "config")


@dataclass
class TransitionResult:
    """What a change of an overlay did, each item as `<category>:<name>`; it is also the payload of its event."""

    success: bool
    scope: str
    mounted: list[str] = field(default_factory=list)
    unmounted: list[str] = field(default_factory=list)
    rolled_back: list[str] = field(default_factory=list)
    error: str | None = None


class RuntimeOverlay:
    """Adds what scopes contribute, and takes it away when the last scope that contributed it is revoked.

    A contribution has `agents` (definitions by name), `context` and `skills` (lists of text). Agents go to the
    session's plan, the others are published as capabilities. An agent the session has anyway is counted once for that,
    so that no scope takes it away. `bundle` fills in agents that are only named, from their files.
    """

    def __init__(
        self, coordinator: Any, *, success_event: str, failure_event: str, bundle: Bundle | None = None
    ) -> None:
        self._coordinator = coordinator
        _detach_agents(coordinator)
        self._success_event = success_event
        self._failure_event = failure_event
        self._bundle = bundle
        self._scopes: dict[str, dict[str, list[str]]] = {}
        baseline = dict.fromkeys(self._agents(), 1)
        self._counts: dict[str, dict[str, int]] = {_AGENTS: baseline, **{category: {} for category in _PUBLISHED}}

    async def apply(self, scope: str, contributions: Mapping[str, Any]) -> TransitionResult:
        """Add what a scope contributes, in place of what it contributed before. A failure leaves everything as it was.

        It is reported, as an event and in the result, and not raised.
        """
        before = self._saved()
        result = TransitionResult(True, scope)
        try:
            wanted, definitions = self._read(contributions)
            self._take_away(scope, result)
            for category, names in wanted.items():
                for name in names:
                    self._add(category, name, definitions, result)
            self._scopes[scope] = wanted
            self._publish()
        except (BundleError, ValueError, TypeError, OSError) as error:
            self._restore(before)
            result = TransitionResult(False, scope, rolled_back=[*result.mounted, *result.unmounted], error=str(error))
        await self._tell(result)
        return result

    async def revoke(self, scope: str) -> TransitionResult:
        """Take away what only this scope contributed; there is nothing to do for a scope that is not applied."""
        result = TransitionResult(True, scope)
        self._take_away(scope, result)
        self._publish()
        await self._tell(result)
        return result

    def get_refcount(self, category: str, key: str) -> int:
        """Return how many hold an item: scopes, and the session itself."""
        return self._counts.get(category, {}).get(key, 0)

    def dump_state(self) -> dict[str, Any]:
        """Return the scopes with what they contribute, and all counts."""
        return deepcopy({"scopes": self._scopes, "refcounts": self._counts})

    def _agents(self) -> dict[str, Any]:
        """Return the live agents of the session's plan."""
        config: dict[str, Any] = self._coordinator.config
        agents = config.get(_AGENTS)
        if isinstance(agents, dict):
            return agents
        config[_AGENTS] = empty = dict[str, Any]()
        return empty

    def _read(self, contributions: Mapping[str, Any]) -> tuple[dict[str, list[str]], dict[str, Any]]:
        """Return the names that are contributed by category, and the definitions of the agents among them."""
        for category in contributions:
            if category in _RESERVED:
                raise ValueError(f"an overlay cannot contribute {category}: they belong to the session's own plan")
            if category not in self._counts:
                raise ValueError(f"unknown contribution {category!r}, known are {', '.join(self._counts)}")
        agents = contributions.get(_AGENTS) or {}
        if not isinstance(agents, Mapping):
            raise TypeError(f"agents must be definitions by name, they are a {type(agents).__name__}")
        definitions = {name: self._defined(name, definition) for name, definition in agents.items()}
        lists = {category: _texts(category, contributions.get(category)) for category in _PUBLISHED}
        return {_AGENTS: list(definitions), **lists}, definitions

    def _defined(self, name: str, definition: Any) -> dict[str, Any]:
        if definition is not None and not isinstance(definition, Mapping):
            raise TypeError(f"agent {name!r} must be a mapping, it is a {type(definition).__name__}")
        written = dict(definition or {})
        path = self._bundle.resolve_agent_path(name) if self._bundle is not None else None
        found = read_agent_file(path, name) if path is not None else {}
        return {**found, **{key: value for key, value in written.items() if value}} or {"name": name}

    def _add(self, category: str, name: str, definitions: Mapping[str, Any], result: TransitionResult) -> None:
        counts = self._counts[category]
        counts[name] = counts.get(name, 0) + 1
        if counts[name] == 1:
            if category == _AGENTS:
                self._agents()[name] = definitions[name]
            result.mounted.append(f"{category}:{name}")

    def _take_away(self, scope: str, result: TransitionResult) -> None:
        for category, names in self._scopes.pop(scope, {}).items():
            counts = self._counts[category]
            for name in names:
                counts[name] -= 1
                if counts[name] == 0:
                    del counts[name]
                    if category == _AGENTS:
                        self._agents().pop(name, None)
                    result.unmounted.append(f"{category}:{name}")

    def _publish(self) -> None:
        for category, capability in _PUBLISHED.items():
            self._coordinator.register_capability(capability, list(self._counts[category]))

    def _saved(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        return deepcopy(self._scopes), deepcopy(self._counts), dict(self._agents())

    def _restore(self, saved: tuple[dict[str, Any], dict[str, Any], dict[str, Any]]) -> None:
        self._scopes, self._counts, agents = saved
        live = self._agents()
        live.clear()
        live.update(agents)
        self._publish()

    async def _tell(self, result: TransitionResult) -> None:
        event = self._success_event if result.success else self._failure_event
        await emit_quietly(self._coordinator.hooks, event, asdict(result))


def _detach_agents(coordinator: Any) -> None:
    """Give a session a map of agents of its own: its plan may be that of other sessions as well."""
    plan = coordinator.config
    own = {**plan, _AGENTS: {**(plan.get(_AGENTS) or {})}}
    coordinator.config = own
    session: Any = getattr(coordinator, "session", None)
    if getattr(session, "config", None) is plan:
        session.config = own


def _texts(category: str, items: Any) -> list[str]:
    listed: Sequence[Any] = items if isinstance(items, list | tuple) else [] if items is None else [items]
    if not all(isinstance(item, str) for item in listed):
        raise TypeError(f"{category} must be a list of text")
    return list(dict.fromkeys(listed))
